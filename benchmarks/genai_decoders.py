"""Tiny decoders as people deploy them, with random weights: files to judge gradients by.

    python benchmarks/genai_decoders.py FOLDER [NAME…] [--precision fp32 fp16 int4 q8]

Each architecture is a configuration of transformers of two layers, whose weights are drawn and
saved in FOLDER/NAME/torch with a tokenizer of one token a byte.  FOLDER/NAME/PRECISION is what
onnxruntime-genai's model builder writes of it, as it is shipped: `model.onnx`, `model.onnx.data`,
`genai_config.json`; for q8 the layout of optimum (TorchScript's export with a cache), whose
products onnxruntime's quantiser turns to MatMulInteger.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import logging
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

VOCABULARY = 80  # no other size: the builder knows the head by it
PRECISIONS = ("fp32", "fp16", "int4", "q8")
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
HEADS = ("num_attention_heads", "num_key_value_heads")
SCALED = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-mha": ("Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama-mqa": ("Llama", {"num_key_value_heads": 1, "attention_bias": True}),
    "llama3": ("Llama", {"rope_parameters": SCALED, "mlp_bias": True, "head_dim": 32}),
    "mistral": ("Mistral", {"head_dim": 16, "sliding_window": None}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32, "tie_word_embeddings": True}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 16}),
    "gemma2-cap": ("Gemma2", {
        "head_dim": 16, "sliding_window": 3, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0,
    }),
    "phi": ("Phi", {**dict.fromkeys(HEADS, 2), "layer_norm_eps": 1e-6}),
    "phi3": ("Phi3", {"original_max_position_embeddings": 64}),
    "phi3-part": ("Phi3", {
        **dict.fromkeys(HEADS, 2), "original_max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5
        },
    }),
    "granite": ("Granite", {
        "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
        "logits_scaling": 1.7,
    }),
    "ernie": ("Ernie4_5", {"head_dim": 16}),
    "hunyuan": ("HunYuanDenseV1", {"head_dim": 16}),
    "nemotron": ("Nemotron", {**dict.fromkeys(HEADS, 2), "head_dim": 32, "norm_eps": 1e-6}),
}  # fmt: skip


def config_of(name: str) -> Any:
    """The configuration of an architecture."""
    kind, given = CONFIGS[name]
    return getattr(transformers, f"{kind}Config")(**{**SIZES, **given})


def model_of(name: str, seed: int = 0) -> torch.nn.Module:
    """A model of transformers with drawn weights, biases and gains in float32."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        config_of(name), attn_implementation="eager", dtype=torch.float32
    )
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.dim() > 1 else 0.1
            parameter.add_(scale * torch.randn_like(parameter) - 0.5 * parameter)
    return model.eval()


def save(name: str, folder: Path, seed: int = 0) -> torch.nn.Module:
    """Write a model and a tokenizer of one token a byte as transformers does."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = model_of(name, seed)
    model.save_pretrained(folder)
    letters = {chr(33 + n): n for n in range(VOCABULARY)}
    text = Tokenizer(models.BPE(vocab=letters, merges=[]))
    text.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=text, bos_token=chr(34), eos_token=chr(35), pad_token=chr(33)
    )
    tokenizer.save_pretrained(folder)
    return model


def made(source: Path, folder: Path, precision: str, *options: str) -> Path:
    """The file of a folder of transformers, which is written if it is not there.

    Raises:
        RuntimeError: its writer cannot write this one, and its last line.
    """
    file = folder / "model.onnx"
    if file.exists():
        return file
    if precision != "q8":
        return build(source, folder, precision, *options)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        export(source, folder / "float.onnx")
    except Exception as error:  # noqa: BLE001 - of any kind
        raise RuntimeError(f"TorchScript: {str(error).splitlines()[-1]}") from None
    return quantise(folder / "float.onnx", file, *options)


def build(source: Path, folder: Path, precision: str, *options: str) -> Path:
    """Run the builder on a folder of transformers; the file that it writes.

    Where processes fork, it starts with what this one has imported.

    Raises:
        RuntimeError: it cannot build this one, and its last line.
    """
    given = ["-i", source, "-o", folder, "-p", precision, "-e", "cpu", "-c", folder / "cache"]
    extra = ["--extra_options", *options] if options else []
    words = list(map(str, [*given, *extra]))
    run = _forked(words, folder) if hasattr(os, "fork") else _child(words)
    if run:
        raise RuntimeError(run.strip().splitlines()[-1])
    return folder / "model.onnx"


def _child(words: list[str]) -> str:
    """What a builder that failed said."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *words]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return (run.stderr or "failed") if run.returncode else ""


def _forked(words: list[str], folder: Path) -> str:
    import onnxruntime_genai

    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "builder.log"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with said.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                sys.argv = ["builder", *words]
                models = Path(onnxruntime_genai.__file__).parent / "models"
                sys.path.insert(0, str(models))
                warnings.simplefilter("ignore")
                try:
                    runpy.run_path(str(models / "builder.py"), run_name="__main__")
                    code = 0
                except Exception as error:  # noqa: BLE001 - its last line
                    os.write(2, f"\n{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return (said.read_text().strip() or "failed") if status else ""


# ---------------------------------------------------------------------- optimum's layout


class _WithCache(torch.nn.Module):
    """A decoder whose caches are inputs and outputs, as optimum exports it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, mask: Any, positions: Any, *past: Any) -> tuple[Any, ...]:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        found = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache,
            use_cache=True,
        )  # fmt: skip
        layers = found.past_key_values.layers
        return (found.logits, *(t for layer in layers for t in (layer.keys, layer.values)))


def export(source: Path, file: Path) -> None:
    """Write a folder of transformers by TorchScript, in the layout of optimum."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, attn_implementation="eager", dtype=torch.float32
    )
    config, (batch, length, before) = model.config, (2, 5, 3)
    layers = [(n, k) for n in range(config.num_hidden_layers) for k in ("key", "value")]
    past = [f"past_key_values.{n}.{kind}" for n, kind in layers]
    now = [f"present.{n}.{kind}" for n, kind in layers]
    total = "past_sequence_length + sequence_length"
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in ("input_ids", "position_ids")}
    axes |= {"logits": {0: "batch_size", 1: "sequence_length"}}
    axes |= {"attention_mask": {0: "batch_size", 1: total}}
    axes |= {name: {0: "batch_size", 2: "past_sequence_length"} for name in past}
    axes |= {name: {0: "batch_size", 2: total} for name in now}
    sizes = (batch, config.num_key_value_heads, before, head_size(config))
    positions = torch.arange(before, before + length).expand(batch, length)
    arguments = (
        torch.ones(batch, length, dtype=torch.long),
        torch.ones(batch, before + length, dtype=torch.long), positions,
        *(torch.randn(sizes) for _ in past),
    )  # fmt: skip
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), quiet():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _WithCache(model).eval(), arguments, str(file), dynamo=False, opset_version=18,
            input_names=["input_ids", "attention_mask", "position_ids", *past],
            output_names=["logits", *now], dynamic_axes=axes,
        )  # fmt: skip


def head_size(config: Any) -> int:
    """The size of a head."""
    found = getattr(config, "head_dim", None)
    return int(found or config.hidden_size // config.num_attention_heads)


def quantise(file: Path, into: Path, *options: str) -> Path:
    """Write a file with weights of 8 bits and activations that are rounded to 8 on the way.

    Options are flags of onnxruntime's `quantize_dynamic`: `per_channel`, `reduce_range`; `uint8`.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kind = QuantType.QUInt8 if "uint8" in options else QuantType.QInt8
    flags = dict.fromkeys((o for o in options if o != "uint8"), True)
    with quiet():
        quantize_dynamic(file, into, weight_type=kind, **flags)
    return into


@contextlib.contextmanager
def quiet() -> Any:
    """Keep what exporters log to themselves."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    given = parser.parse_args()
    for name, precision in itertools.product(given.names or CONFIGS, given.precision):
        source = given.folder / name / "torch"
        if not source.exists():
            save(name, source)
        try:
            print(made(source, given.folder / name / precision, precision), flush=True)
        except RuntimeError as error:
            print(f"{name} {precision}: {error}", flush=True)


if __name__ == "__main__":
    main()
