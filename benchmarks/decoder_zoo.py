"""Deployed decoders trained where they stand: gradients, twenty steps, and who runs the result.

    python benchmarks/decoder_zoo.py FOLDER [NAME…] [--random N]

Per file of onnxruntime-genai's builder (fp32, fp16, int4) or of optimum's layout in 8 bits:

    off      the largest difference of a gradient to float64 (transformers with the decoded weights
             of the file), by the largest element of its tensor; in brackets that of PyTorch in the
             file's own type, of float16 or beyond the limit
    loss     of the first and the last of twenty steps of AdamW, and how far the losses are from
             those of PyTorch in float64
    stock    the loss of the written file in onnxruntime, how far that is from PyTorch after the
             same steps (which does not round activations where `accuracy_level` lets onnxruntime),
             and whether onnxruntime-genai generates greedily what onnxruntime does

Files of few bits are trained by adapters of rank 4 and by their norms.  `--random N` draws
architectures and options of the builder, and prints what is wrong alone.  Some minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
import transformers
from decoder_reference import RANK, Reference
from decoder_runs import Stock, greedy, greedy_by_genai, loss_of
from genai_decoders import CONFIGS, VOCABULARY, config_of, head_size, made, save

import gradtool as gt

Array = np.ndarray[Any, Any]
STEPS, EXAMPLES, LENGTH = 20, 4, 10
RATE, EPSILON = 3e-3, 1e-4  # an epsilon that gradients of rounding alone stay below
ADAPTED = ("int4", "int8", "q8")
CLEAR = 1e-4  # of a step of 8 bits, between activations and where rounding turns
LIMITS = {"fp32": 1e-5, "fp16": 2e-2, "int4": 1e-5, "int8": 1e-5, "q8": 1e-4}
TIED = 0.02  # of the largest score
STOCK = {"fp32": 1e-4, "fp16": 2e-2, "int4": 2e-2, "int8": 2e-2, "q8": 2e-2}
INT4 = (
    (), ("block_size=16", "is_symmetric=false"), ("block_size=128", "accuracy_level=1"),
    ("algo_config=k_quant", "block_size=16"), ("use_qdq=true",),
    ("op_types_to_quantize=MatMul/Gather", "block_size=32"), ("shared_embeddings=true",),
    ("use_qdq=true", "is_symmetric=false", "block_size=16"), ("fuse_qkv=false", "block_size=64"),
    ("algo_config=rtn_last", "fuse_mlp_gate_up=true"), ("include_hidden_states=true",),
    ("algo_config=k_quant_mixed", "is_symmetric=false", "block_size=16"),
)  # fmt: skip
FOLDED = ("gemma", "gemma2", "gemma2-cap", "nemotron", "ernie")  # or not written, by TorchScript
FEW = ("llama", "qwen3", "gemma2", "phi", "phi3", "granite")


@dataclass(frozen=True)
class Entry:
    """A file of the zoo."""

    name: str
    precision: str
    options: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return "_".join((self.precision, *self.options)).replace("/", "+")


def entries() -> list[Entry]:
    """The files of the table."""
    found = [Entry(name, precision) for name in FEW for precision in ("fp32", "fp16")]
    found += [Entry(FEW[(i + 2) % len(FEW)], "int4", each) for i, each in enumerate(INT4) if i != 6]
    found += [Entry("llama-mha", "int4", INT4[6]), Entry("qwen2", "int8")]
    flags = itertools.cycle([(), ("per_channel", "reduce_range"), ("uint8",)])
    found += [Entry(n, "q8", next(flags)) for n in ("llama", "qwen3", "phi", "phi3", "granite")]
    return sorted(found, key=lambda entry: (entry.precision, entry.name))


def drawn(rng: np.random.Generator) -> Entry:
    """Any architecture, with any options."""
    precision = str(rng.choice(["fp32", "fp16", "int4", "int4", "int4", "int8", "q8"]))
    choices: dict[str, Sequence[str]] = {
        "fuse_qkv": ("false",), "fuse_mlp_gate_up": ("true",), "include_hidden_states": ("true",),
        "windowed_kv_cache": ("false",),
    }  # fmt: skip
    if precision in ("int4", "int8"):
        choices |= {
            "block_size": ("16", "32", "64"), "is_symmetric": ("false", "true"),
            "accuracy_level": ("1", "2", "4"), "algo_config": ("default", "rtn", "k_quant"),
            "matmul_mixed_precision": ("last_matmul:int8", "mixed_layers:int8"),
            "op_types_to_quantize": ("MatMul", "MatMul/Gather"), "use_qdq": ("true",),
            "shared_embeddings": ("true",), "nodes_to_exclude": ("/lm_head/MatMul",),
        }  # fmt: skip
    options = [f"{k}={rng.choice(v)}" for k, v in choices.items() if rng.random() < 0.3]
    if precision == "q8":
        options = [k for k in ("per_channel", "reduce_range", "uint8") if rng.random() < 0.4]
    names = [n for n in CONFIGS if precision != "q8" or n not in FOLDED]
    return Entry(str(rng.choice(names)), precision, tuple(options))


# ------------------------------------------------------------------------------ gradients


def settings(entry: Entry, file: Path) -> dict[str, Any]:
    """What of a file is trained, and by which loss."""
    hidden = "include_hidden_states=true" in entry.options
    found: dict[str, Any] = {"loss": "causal:logits" if hidden else "causal"}
    if entry.precision in ADAPTED:
        held = onnx.load(file, load_external_data=False).graph.initializer
        floats = [t.name for t in held if t.data_type == onnx.TensorProto.FLOAT]
        norms = [n for n in floats if "norm" in n and n.endswith(".weight")]
        found |= {"lora": RANK, **({"wrt": norms} if norms else {})}
    return found


def inputs_of(ids: Array) -> dict[str, Array]:
    """What a decoder may take of tokens `[batch, sequence]`, nothing of them hidden."""
    positions = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": positions}


def batch_of(reference: Reference) -> tuple[Array, Array]:
    """Tokens and labels; of a file that rounds activations such that none is near to turn."""
    draw = np.random.default_rng(0)
    while True:
        ids = draw.integers(3, VOCABULARY, (EXAMPLES, LENGTH))
        labels = draw.integers(3, VOCABULARY, ids.shape)
        if not reference.weights.rounded:
            return ids, labels
        ids, labels = ids[:1], labels[:1]
        reference.loss({}, ids, labels)
        if reference.margin > CLEAR:
            return ids, labels


def gradients(training: gt.Graph, ids: Array, labels: Array) -> tuple[float, dict[str, Array]]:
    """Loss and gradients of a training graph."""
    given = {**inputs_of(ids), "labels": labels}
    takes = {value.name for value in training.model.graph.inputs}
    result = gt.run(training, {n: a for n, a in given.items() if n in takes})
    return float(result.loss), {n: np.asarray(g, float) for n, g in result.gradients.items()}


def parameters(training: gt.Graph, seed: int | None = None) -> dict[str, Array]:
    """What a graph trains; with a seed factors B of adapters are drawn anew."""
    draw, held = np.random.default_rng(seed), training.model.graph.initializers
    found = {}
    for name in training.gradients:
        value = held[name]
        if seed is not None and name.endswith(".lora_B"):
            array = 0.3 * draw.standard_normal(value.shape.numpy())
            value.const_value = ir.tensor(array.astype(np.float32), name=name)
        found[name] = value.const_value.numpy()
    return found


def worst(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> tuple[float, str]:
    """The largest difference of gradients, by the largest element of the tensor; and its name.

    One that is zero but for rounding (of a bias of keys) is held to the others.
    """
    least = 1e-4 * max(float(abs(g).max()) for g in wanted.values())
    return max(
        (float(abs(g - wanted[n]).max() / max(abs(wanted[n]).max(), least)), n)
        for n, g in found.items()
    )


# --------------------------------------------------------------------------------- a file


@dataclass
class Row:
    """What is printed of a file."""

    entry: Entry
    off: float = 0.0
    where: str = ""
    torch_off: float | None = None
    losses: tuple[float, float] = (0.0, 0.0)
    losses_off: float = 0.0
    stock: float = 0.0
    stock_off: float = 0.0
    genai: str = "-"
    said: str = ""

    @property
    def is_right(self) -> bool:
        """Whether gradients are near, the loss falls, and runtimes run the result."""
        fell = self.losses[1] < self.losses[0] and self.stock_off <= STOCK[self.entry.precision]
        limit = max(LIMITS[self.entry.precision], 2 * (self.torch_off or 0))
        return not self.said and fell and self.off <= limit and self.genai != "differs"

    def line(self) -> str:
        """One line of the table."""
        own = f"{self.entry.name:11} {self.entry.precision:5}"
        options = " ".join(self.entry.options)
        if self.said:
            return f"{own} {self.said}  {options}"
        beside = "" if self.torch_off is None else f" ({self.torch_off:.0e})"
        first, last = self.losses
        return (
            f"{own} {self.off:.1e}{beside:8} {first:.3f} → {last:.3f} ±{self.losses_off:.0e}"
            f"  {self.stock:.3f} ±{self.stock_off:.0e} {self.genai:6} {options}"
        )


def judged(entry: Entry, folder: Path, *, steps: int = STEPS) -> Row:
    """Everything about a file, which is written if it is not there."""
    source, row = folder / entry.name / "torch", Row(entry)
    if not source.exists():
        save(entry.name, source)
    home = folder / entry.name / entry.folder
    try:
        file = made(source, home, entry.precision, *entry.options)
        Stock(file, head_size(config_of(entry.name))).scores(np.full((1, 3), 5))
    except Exception as error:  # noqa: BLE001 - of a builder, or of a file that nobody runs
        row.said = f"not written: {str(error).splitlines()[-1][:150]}"
        return row
    try:
        reference = Reference(source, file, plain=entry.precision == "fp16")
        ids, labels = batch_of(reference)
        compared(row, reference, file, ids, labels)
        trained(row, reference, file, ids, labels, steps)
    except gt.GradtoolError as error:
        row.said = f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - whatever happens is a finding
        row.said = f"failed: {type(error).__name__}: {error}"
    return row


def compared(row: Row, reference: Reference, file: Path, ids: Array, labels: Array) -> None:
    """Gradients beside those of float64, with adapters that are no longer zero."""
    training = gt.grad(gt.load(file), **settings(row.entry, file))
    held = parameters(training, seed=1)
    _, found = gradients(training, ids, labels)
    _, wanted = reference.gradients(held, ids, labels)
    row.off, row.where = worst(found, wanted)
    own = torch.float16 if row.entry.precision == "fp16" else torch.float32
    if own == torch.float16 or row.off > LIMITS[row.entry.precision]:
        reference.model.to(own)
        _, theirs = reference.gradients(held, ids, labels, own)
        reference.model.double()
        row.torch_off, _ = worst(theirs, wanted)


def trained(
    row: Row, reference: Reference, file: Path, ids: Array, labels: Array, steps: int
) -> None:
    """Steps here and by PyTorch, and the written result in other runtimes."""
    given = settings(row.entry, file)
    leaves = reference.leaves(parameters(gt.grad(gt.load(file), **given)))
    update = torch.optim.AdamW(leaves.values(), lr=RATE, weight_decay=0.01, eps=EPSILON)
    wanted = []
    for _ in range(steps):
        loss = reference.loss(leaves, ids, labels)
        update.zero_grad()
        loss.backward()
        update.step()
        wanted.append(loss.item())
    data = {**inputs_of(ids), "labels": labels}
    with (
        tempfile.TemporaryDirectory() as name,
        gt.Trainer(
            file, **given, batch=len(ids), steps=steps, lr=RATE, optimizer="adamw", shuffle=False,
            optimizer_option={"epsilon": EPSILON},
        ) as trainer,
    ):  # fmt: skip
        found = trainer.fit(data).losses
        result, adapter = Path(name) / "trained.onnx", None
        if "lora" in given:
            trainer.save_adapter(result)
            adapter = Path(name) / "trained.onnx_adapter"
        else:
            trainer.save(result)
        row.losses = found[0], found[-1]
        row.losses_off = max(abs(a / b - 1) for a, b in zip(found, wanted, strict=True))
        ran(row, reference, file, result, adapter, ids, labels)
        row.stock_off = abs(row.stock / reference.loss(leaves, ids, labels).item() - 1)


def ran(
    row: Row, reference: Reference, file: Path, result: Path, adapter: Path | None, ids: Array,
    labels: Array,
) -> None:  # fmt: skip
    """The result in onnxruntime, and in onnxruntime-genai if it is one of its files."""
    stock = Stock(result, head_size(reference.config), adapter)
    row.stock = loss_of(stock, ids, labels)
    if row.entry.precision in ("q8", "fp16"):  # of the builder's fp16 none is for processors
        return
    wanted = greedy(stock, ids[0, :4], LENGTH + 4)
    scratch = result.parent / "genai"
    found = greedy_by_genai(file.parent, result, ids[0, :4], LENGTH + 4, adapter, scratch)
    row.genai = "equal" if found == wanted else "differs"
    for place, (a, b) in enumerate(zip(wanted, found, strict=False)):
        if a != b:  # one token at a time is rounded otherwise where activations have 8 bits
            scores = stock.scores(np.array([wanted[:place]], np.int64))[0, -1]
            row.genai = "tied" if scores[a] - scores[b] < TIED * abs(scores).max() else "differs"
            break


def main() -> int:
    """Judge files, and print a line of each; the exit code says whether one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--random", type=int, metavar="N", help="files that are drawn")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    chosen = [e for e in entries() if not given.names or e.name in given.names]
    if given.random is not None:
        rng = np.random.default_rng(given.seed)
        chosen = [drawn(rng) for _ in range(given.random)]
    print("decoder     file  off               loss, 20 steps        onnxruntime   genai  options")
    wrong = unwritten = 0
    for entry in chosen:
        row = judged(entry, given.folder)
        is_unwritten = row.said.startswith("not written")
        is_wrong = not row.is_right and not is_unwritten
        wrong, unwritten = wrong + is_wrong, unwritten + is_unwritten
        if given.random is None or is_wrong:
            print(row.line() + (f"  WRONG ({row.where})" if is_wrong else ""), flush=True)
    print(f"{wrong} of {len(chosen)} are wrong, {unwritten} were not written")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
