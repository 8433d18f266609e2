"""Tiny decoders as onnxruntime-genai's model builder writes them, with random weights.

    python benchmarks/genai_decoders.py FOLDER [NAME…] [--precision fp32 fp16 int4]

Each architecture is a configuration of transformers of one or two layers, whose weights are drawn
and saved in FOLDER/NAME/torch with a tokenizer of one token a byte; the builder's folder is
FOLDER/NAME/PRECISION, as it is shipped: `model.onnx`, `model.onnx.data`, `genai_config.json`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy

import gradtool as gt

VOCABULARY = 80  # no other size: the builder knows the head by it
PRECISIONS = ("fp32", "fp16", "int4")
SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
HEADS = ("num_attention_heads", "num_key_value_heads")
CONFIGS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-mha": ("Llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama-mqa": ("Llama", {"num_key_value_heads": 1, "attention_bias": True}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 16}),
    "phi": ("Phi", {**dict.fromkeys(HEADS, 2), "layer_norm_eps": 1e-6}),
    "phi3": ("Phi3", {"original_max_position_embeddings": 64}),
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


def build(source: Path, folder: Path, precision: str, *options: str) -> Path:
    """Run the builder on a folder of transformers; the file that it writes.

    Raises:
        RuntimeError: it cannot build this one, and its last line.
    """
    given = ["-i", source, "-o", folder, "-p", precision, "-e", "cpu", "-c", folder / "cache"]
    extra = ["--extra_options", *options] if options else []
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", *given, *extra]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(run.stderr.strip().splitlines()[-1])
    return folder / "model.onnx"


# ----------------------------------------------------------------------- reference


def laid_out(tensors: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Tensors of transformers by name, of weights or of gradients, as the builder lays them out."""
    table = tensors["model.embed_tokens.weight"]
    found = {
        "model.embed_tokens.weight": table,
        "lm_head.MatMul.weight": tensors.get("lm_head.weight", table).mT,
    }
    last = f"model.layers.{config.num_hidden_layers}.final_norm_layernorm"
    for name, tensor in tensors.items():
        owner, _, kind = name.replace("self_attn.dense", "attn.o_proj").rpartition(".")
        owner = owner.replace("self_attn", "attn")
        owner = re.sub(r"^model\.(norm|final_layernorm)$", last, owner)
        owner = re.sub(r"\.([qk]_norm)$", r".\1.layernorm", owner)
        if owner.endswith("layernorm"):
            found[f"{owner}.{kind}"] = tensor
        elif tensor.dim() > 1:
            found.setdefault(f"{owner}.MatMul.{kind}", tensor.mT)
        else:
            found[f"{owner}.Add.{kind}"] = tensor
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = (config.num_attention_heads, *[config.num_key_value_heads] * 2)
    packs = (
        ("attn", ("q_proj", "k_proj", "v_proj"), "qkv_proj", [size * n for n in heads]),
        ("mlp", ("gate_proj", "up_proj"), "gate_up_proj", [config.intermediate_size] * 2),
    )
    for layer, kind in product(range(config.num_hidden_layers), ("MatMul.weight", "Add.bias")):
        for part, apart, together, sizes in packs:
            names = [f"model.layers.{layer}.{part}.{each}.{kind}" for each in apart]
            whole = f"model.layers.{layer}.{part}.{together}.{kind}"
            if whole in found:
                found |= dict(zip(names, found[whole].split(sizes, -1), strict=True))
            elif names[0] in found:
                found[whole] = torch.cat([found[name] for name in names], -1)
    return found


def reference(
    folder: Path, precision: str, ids: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> tuple[float, np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    """Loss, scores and gradients in float64 of a folder of transformers, by name of the builder.

    Weights are rounded as the builder rounds them; each score is held against the next label.
    Without fused attention the builder leaves caps of scores and windows out.
    """
    config = transformers.AutoConfig.from_pretrained(folder)
    if precision == "fp16":
        config.attn_logit_softcapping = None
        config.layer_types = ["full_attention"] * config.num_hidden_layers
        config.sliding_window = config.max_position_embeddings
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, attn_implementation="eager", dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in model.parameters() if precision == "fp16" else ():
            parameter.copy_(parameter.half())
    scores = model(torch.from_numpy(ids)).logits
    ahead = torch.from_numpy(labels)[:, 1:]
    loss = cross_entropy(scores[:, :-1].flatten(0, 1), ahead.flatten())
    loss.backward()
    tensors = {name: p.grad for name, p in model.named_parameters()}
    found = laid_out(tensors, model.config)
    return loss.item(), scores.detach().numpy(), {n: t.numpy() for n, t in found.items()}


def inputs_of(ids: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """What a decoder may take of tokens `[batch, sequence]`, nothing of them hidden."""
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": positions}


def gradients(
    file: Path, ids: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> tuple[float, dict[str, np.ndarray[Any, Any]]]:
    """Loss and gradients of a file by gradtool."""
    training = gt.grad(gt.load(file), loss="causal")
    takes = {value.name for value in training.model.graph.inputs}
    given = {**inputs_of(ids), "labels": labels}
    result = gt.run(training, {n: a for n, a in given.items() if n in takes})
    return float(result.loss), {n: np.asarray(g, float) for n, g in result.gradients.items()}


def worst(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[float, str]:
    """The largest difference of gradients, by the largest element of the tensor; and its name."""
    return max(
        (float(abs(g - wanted[n]).max() / abs(wanted[n]).max()), n) for n, g in found.items()
    )


def main() -> None:
    """Build each decoder, and print how far its gradients are from transformers'."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    given = parser.parse_args()
    draw = np.random.default_rng(0)
    ids, labels = draw.integers(3, VOCABULARY, (2, 2, 12))
    for name in given.names or CONFIGS:
        source = given.folder / name / "torch"
        if not source.exists():
            save(name, source)
        for precision in given.precision:
            said = judge(source, given.folder / name / precision, precision, ids, labels)
            print(f"{name:10} {precision}  {said}", flush=True)


def judge(
    source: Path,
    folder: Path,
    precision: str,
    ids: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
) -> str:
    """How far gradients of a file, which is built if it is not there, are from the reference."""
    file = folder / "model.onnx"
    try:
        file = file if file.exists() else build(source, folder, precision)
        loss, found = gradients(file, ids, labels)
    except (RuntimeError, gt.GradtoolError) as error:
        return f"not differentiated: {error}"
    there, _, wanted = reference(source, precision, ids, labels)
    off, where = worst(found, wanted)
    by = abs(loss / there - 1)
    return f"{len(found)} gradients off by {off:.1e} ({where}), loss by {by:.1e}"


if __name__ == "__main__":
    main()
