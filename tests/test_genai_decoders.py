"""Files of onnxruntime-genai's model builder: what `benchmarks/genai_decoders.py` judges."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import gradtool as gt

ROOT = Path(__file__).parents[1]
# By architecture: fused attention, or plain operators around it. The names of the benchmark.
NAMES = ("qwen3", "gemma2", "llama", "llama-mha", "llama-mqa", "qwen2", "gemma", "phi", "phi3")
CASES = [(name, precision) for name in NAMES for precision in ("fp32", "fp16")]
# By type the largest difference of a gradient to that of float64, by its largest element;
# transformers in float16 is off by 1.2e-2.
OFF = {"fp32": 1e-5, "fp16": 2e-2}


@pytest.fixture(scope="module")
def decoders():
    pytest.importorskip("onnxruntime_genai")
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield sys.modules.get("genai_decoders") or pytest.importorskip("genai_decoders")


def built(decoders, folder: Path, name: str, precision: str) -> Path:
    decoders.save(name, folder / "torch")
    return decoders.build(folder / "torch", folder / precision, precision)


def tokens(decoders, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(3, decoders.VOCABULARY, shape)


@pytest.mark.sample(9, 4)  # 15 s each
@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "precision"), CASES)
def test_gradients_are_those_of_transformers_in_float64(decoders, tmp_path, name, precision):
    file = built(decoders, tmp_path, name, precision)
    ids, labels = tokens(decoders, 2, 2, 12)
    loss, found = decoders.gradients(file, ids, labels)
    there, _, wanted = decoders.reference(tmp_path / "torch", precision, ids, labels)

    assert loss == pytest.approx(there, rel=OFF[precision] / 10)
    assert len(found) == len([n for n in wanted if n in found])
    assert decoders.worst(found, wanted)[0] <= OFF[precision]


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_a_trained_file_generates_other_text(decoders, tmp_path):
    genai = pytest.importorskip("onnxruntime_genai")
    file = built(decoders, tmp_path, "qwen3", "fp32")
    before = generated(genai, file.parent)
    ids = tokens(decoders, 8, 12)
    with gt.Trainer(file, loss="causal", batch=4, steps=5, lr=0.1, optimizer="sgd") as trainer:
        trainer.fit({"input_ids": ids, "labels": ids})
        after = tmp_path / "trained"
        shutil.copytree(file.parent, after, ignore=shutil.ignore_patterns("model.onnx*"))
        trainer.save(after / "model.onnx")

    assert generated(genai, after) != before


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_a_file_of_four_bits_is_read_up_to_its_products(decoders, tmp_path):
    model = gt.load(built(decoders, tmp_path, "llama", "int4"))

    assert [v.name for v in model.graph.outputs] == ["logits"]
    assert {n.op_type for n in model.graph if n.domain == "com.microsoft"} <= {"MatMulNBits"}


def generated(genai, folder: Path) -> list[int]:
    """The tokens that greedy search has after three."""
    model = genai.Model(str(folder))
    parameters = genai.GeneratorParams(model)
    parameters.set_search_options(max_length=16, do_sample=False)
    generator = genai.Generator(model, parameters)
    generator.append_tokens(np.array([[5, 7, 9]], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]
