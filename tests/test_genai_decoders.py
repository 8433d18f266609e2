"""Files of onnxruntime-genai's model builder: a part of what `benchmarks/decoder_zoo.py` judges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import gradtool as gt

ROOT = Path(__file__).parents[1]
# By architecture: fused attention, or plain operators around it; bits; products of integers.
CASES = [
    ("qwen3", "fp32", ()), ("llama", "q8", ("per_channel",)),
    ("gemma2", "int4", ("algo_config=k_quant", "block_size=16")),
    *[(name, precision, ()) for name in ("gemma2", "llama", "llama-mqa", "phi3-part", "granite")
      for precision in ("fp32", "fp16", "int4")],
    ("phi", "int4", ("use_qdq=true", "is_symmetric=false", "block_size=16")),
    ("llama-mha", "int4", ("shared_embeddings=true",)), ("qwen2", "int8", ()),
    ("phi3", "q8", ("uint8",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def zoo():
    pytest.importorskip("onnxruntime_genai")
    pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield sys.modules.get("decoder_zoo") or pytest.importorskip("decoder_zoo")


@pytest.mark.sample(5, 2)
@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "precision", "options"), CASES)
def test_a_file_is_trained_as_it_stands(zoo, tmp_path, name, precision, options):
    row = zoo.judged(zoo.Entry(name, precision, options), tmp_path, steps=5)

    assert row.is_right, row.line()
    assert row.losses_off <= {"fp16": 2e-2, "q8": 5e-2}.get(precision, 1e-4)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_a_file_of_four_bits_is_read_up_to_its_products(zoo, tmp_path):
    zoo.save("llama", tmp_path / "torch")
    model = gt.load(zoo.made(tmp_path / "torch", tmp_path / "int4", "int4"))

    assert [v.name for v in model.graph.outputs] == ["logits"]
    assert {n.op_type for n in model.graph if n.domain == "com.microsoft"} <= {"MatMulNBits"}
