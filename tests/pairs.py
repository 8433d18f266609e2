"""Pairs of options of every command, and whether each changes something or is refused.

A pair that is taken must do something else than each of its options alone, whatever it is: print,
write or say other things.  What nobody can see (a thread, a seed of a search that has one answer)
is in `UNSEEN`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conftest import build

from gradtool import cli
from gradtool.commands.group import group
from gradtool.commands.train import NOT_HERE
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.options import options_of

NET = """net (float[batch, 2, 8, 8] x, int64[4] order)
    => (float[batch, 4] y, float[batch, 2, 4, 4] p) {
    n = BatchNormalization <epsilon = 0.001> (x, scale, bias, mean, var)
    d, kept = Dropout (n, ratio)
    s = Sigmoid (d)
    p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (s)
    t = Tanh (p)
    e = Sin (t)
    k = Transpose <perm = [0, 1, 3, 2]> (e)
    q = MatMul (e, k)
    z = Softmax <axis = -1> (q)
    o = MatMul (z, e)
    f = Flatten (o)
    h = MatMul (f, w1)
    g = Gelu (h)
    u = Add (h, g)
    i = Add (u, h)
    v = Add (i, h)
    a = Exp (v)
    r = MatMul (a, w2)
    b = Gather (w3, order)
    y = Add (r, b)
}"""


def net(width=16):
    """A model in which every option of a gradient changes something."""
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return (rng.standard_normal(shape) / 8).astype(np.float32)

    ones = np.ones(2, np.float32)
    return build(
        NET, scale=ones, bias=ones, mean=0 * ones, var=ones, ratio=np.float32(0.25),
        w1=drawn(32, width), w2=drawn(width, 4), w3=drawn(4),
        order=np.array([2, 0, 1, 2]),
    )  # fmt: skip


SIZES = {
    "dims": ["--dim", "batch=2"], "shapes": ["--shape", "x=3x2x8x8"], "batch": ["--batch", "4"],
    "values": ["--set", "order=3,2,1,0"], "keep_cache": ["--keep-cache"],
}  # fmt: skip
HEAD = {"head": ["--head", "h:4"]}
GRADIENT = {
    "loss": ["--loss", "mse:y"], "labels": ["--labels", "target"], "wrt": ["--wrt", "scale"],
    "no_grad": ["--no-grad", "g"], "input_grad": ["--input-grad", "x"],
    "accumulate": ["--accumulate", "sum"], "train_mode": ["--train-mode"],
    "lora": ["--lora", "2", "--wrt", "bias"], "lora_target": ["--lora-target", "w1"],
    "lora_alpha": ["--lora-alpha", "3"], "rslora": ["--rslora"],
    "optimizer_option": ["--optimizer-option", "weight_decay=0.5"],
    "clip_norm": ["--clip-norm", "0.01"], "clip_value": ["--clip-value", "0.001"],
    "no_decay": ["--no-decay", "scale"], "lr_scale": ["--lr-scale", "scale=0.5"],
    **{name: [each.flag] for name, each in options_of(GradOptions).items() if each.kind == "flag"},
}  # fmt: skip
UPDATE = {"optimizer": ["--optimizer", "adam"]}
WRITE = {
    "output": ["-o", "other.onnx"], "force": ["--force"], "functions": ["--functions"],
    "external_data": ["--external-data", "always"], "portable": ["--portable"],
}  # fmt: skip
BARRIER = {"barrier": ["--no-barrier"]}
JSON = {"form": ["--format", "json"]}
KERNELS = {"kernels": ["--kernels", "numpy"], "exact_conv": ["--exact-conv"]}
MODEL = ["net.onnx"]
DATA = ["--data", "train.npz", "--batch", "4", "--checkpoint-every", "2"]

COMMANDS: dict[str, tuple[list[list[str]], dict[str, list[str]]]] = {
    "grad": (
        [[*MODEL], [*MODEL, "-o", "-"]],
        {**WRITE, "split": ["--split"], "params_as_inputs": ["--params-as-inputs"],
         "opset": ["--opset", "21"], **HEAD, **SIZES, **GRADIENT, **UPDATE, **JSON},
    ),
    "mirror": (
        [[*MODEL], [*MODEL, "--report"], [*MODEL, "--explain", "t"], [*MODEL, "-o", "plan.json"],
         [*MODEL, "--report", "--by", "op"]],
        {"report": ["--report"], "policy": ["--policy", "cheap"], "keep": ["--keep", "e"],
         "drop": ["--drop", "h"], "checkpoints": ["--checkpoints", "h"],
         "explain": ["--explain", "s"], "memory": ["--memory", "1MiB"], "by": ["--by", "tensor"],
         "top": ["--top", "2"], **WRITE, **BARRIER, **KERNELS, **SIZES, **GRADIENT, **UPDATE,
         **JSON},
    ),
    "recompute": (
        [[*MODEL, "--strategy", "sqrt"], [*MODEL, "--budget", "min"], [*MODEL, "--frontier"],
         [*MODEL, "--checkpoints", "h"], [*MODEL, "--max-batch", "--memory", "64KiB"],
         [*MODEL, "--strategy", "sqrt", "-o", "plan.json"]],
        {"checkpoints": ["--checkpoints", "e"], "strategy": ["--strategy", "segments"],
         "budget": ["--budget", "95%"], "max_slowdown": ["--max-slowdown", "5%"],
         "plan": ["--plan", "made.json"], "frontier": ["--frontier"],
         "points": ["--points", "3"], "max_batch": ["--max-batch"],
         "memory": ["--memory", "128KiB"],
         "optimizer": ["--optimizer", "adam"], "cost": ["--cost", "times.json"],
         "time_limit": ["--time-limit", "1s"], "prove": ["--prove"],
         "seed": ["--seed", "5"], **WRITE, **BARRIER, **KERNELS, **SIZES, **GRADIENT, **JSON},
    ),
    "report": (
        [[*MODEL], [*MODEL, "--html", "a.html"], [*MODEL, "two.onnx"],
         [*MODEL, "--batch", "16", "--ranks", "4"]],
        {"ranks": ["--ranks", "2"], "shard": ["--shard", "optimizer"], "stages": ["--stages", "2"],
         "shard_tables": ["--shard-tables", "*"], "staleness": ["--staleness", "1"],
         "sync_batchnorm": ["--sync-batchnorm"],
         "micro_batches": ["--micro-batches", "2"], "link": ["--link", "1GB/s"],
         "latency": ["--latency", "1ms"], "cost": ["--cost", "times.json"],
         **KERNELS,
         "by": ["--by", "tensor"], "top": ["--top", "2"], "html": ["--html", "b.html"],
         "trace": ["--trace", "b.json"], "svg": ["--svg", "s.svg"], "plan": ["--plan", "segments"],
         "frontier": ["--frontier"],
         "force": ["--force"], **SIZES, **GRADIENT, **UPDATE, **JSON},
    ),
    "train": (
        [[*MODEL, *DATA, "--loss", "ce:y", "--steps", "12", "--lr", "0.05"],
         [*MODEL, *DATA, "--loss", "ce:y", "--epochs", "3", "--lr", "0.1", "--eval", "test.npz",
          "--every", "2"]],
        {"evaluate": ["--eval", "made.npz"], "split": ["--split", "25%"],
         "output": ["-o", "other.onnx"],
         "folder": ["--run", "there"], "resume": ["--resume"], "result": ["--result", "last"],
         "force": ["--force"], "mapped": ["--map", "labels=other"], "batch": ["--batch", "3"],
         "epochs": ["--epochs", "2"], "steps": ["--steps", "3"], "shuffle": ["--no-shuffle"],
         "lengths": ["--lengths", "auto"],
         "seed": ["--seed", "5"], "optimizer": ["--optimizer", "sgd"], "lr": ["--lr", "0.02"],
         "schedule": ["--schedule", "linear"], "warmup": ["--warmup", "2"],
         "loss_scale": ["--loss-scale", "3"], "micro_batches": ["--micro-batches", "2"],
         "plan": ["--plan", "sqrt"], "every": ["--every", "2"], "memory": ["--memory", "36KiB"],
         "metric": ["--metric", "accuracy:y"], "patience": ["--patience", "1"],
         "ema": ["--ema", "0.5"], "unfreeze": ["--unfreeze", "w1@2"], **HEAD,
         "trace": ["--trace", "b.json"],
         "checkpoint_every": ["--checkpoint-every", "1"], "keep": ["--keep", "1"],
         **KERNELS,
         "lora_adapter": ["--lora-adapter"], "export": ["--export"],
         "find_lr": ["--find-lr"], "html": ["--html", "rates.html"],
         **{n: v for n, v in SIZES.items() if n != "batch"},
         **{n: v for n, v in GRADIENT.items() if n not in NOT_HERE}, **JSON},
    ),
    "run": (
        [[*MODEL, "--batch", "5"], [*MODEL, "--inputs", "made.npz"], ["made.onnx", "--batch", "5"]],
        {"inputs": ["--inputs", "made.npz"], "seed": ["--seed", "5"], "engine": ["--engine", "ort"],
         "plan": ["--plan", "optimal"], "repeat": ["--repeat", "2"], "measure": ["--measure"],
         **KERNELS,
         "explain_kernels": ["--explain-kernels"],
         "verify": ["--verify", "plans"], "profile": ["--profile", "p.json"],
         "trace": ["--trace", "t.json"], "html": ["--html", "k.html"], "check_nan": ["--check-nan"],
         "check_arena": ["--check-arena"], "save_grads": ["--save-grads", "g.npz"],
         "save_outputs": ["--save-outputs", "o.npz"], "fetch": ["--fetch", "h"],
         "max_turns": ["--max-turns", "7"], "max_dynamic": ["--max-dynamic", "1MiB"],
         "force": ["--force"], **GRADIENT, **UPDATE, **JSON},
    ),
    "kit": (
        [[*MODEL]],
        {"output": ["-o", "other.kit"], "force": ["--force"], "plan": ["--plan", "sqrt"],
         "portable": ["--portable"], "javascript": ["--javascript"],
         **HEAD, **SIZES, **GRADIENT, **UPDATE, **JSON},
    ),
    "kit merge": (
        [["made.kit", "made.kit/state.safetensors"]],
        {"output": ["-o", "other.onnx"], "force": ["--force"], "model": ["--model", "net.onnx"],
         "lora_adapter": ["--lora-adapter"]},
    ),
    "check": (
        [[], ["--update"], ["--base", "HEAD"], ["--list"]],
        {"update": ["--update"], "only_improved": ["--only-improved"], "allow_new": ["--allow-new"],
         "fail_on_stale": ["--fail-on-stale"], "fail_on": ["--fail-on", "nodes:0%"],
         "base": ["--base", "HEAD"], "run": ["--run"], "listing": ["--list"],
         "exit_zero": ["--exit-zero"], "outputs": ["--output", "markdown"], "jobs": ["-j", "1"],
         "no_cache": ["--no-cache"], "form": ["--format", "json"]},
    ),
    "compare": (
        [[*MODEL, "two.onnx"], [*MODEL, "--plan", "optimal"], ["one.json", "two.json"],
         [*MODEL, "made.json"]],
        {"plans": ["--plan", "reorder"], "model": ["--model", "net.onnx"],
         "by": ["--by", "tensor"],
         "top": ["--top", "1"], **KERNELS, **SIZES, **GRADIENT, **UPDATE, **JSON},
    ),
    "ops": (
        [[], [*MODEL]],
        {"missing": ["--missing"], "template": ["--template", "Relu"], **SIZES, **JSON},
    ),
    "init": (
        [["--force"]],
        {"plan": ["--plan", "sqrt"], "dims": ["--dim", "batch=3"],
         "values": ["--set", "order=3,2,1,0"], "no_baseline": ["--no-baseline"]},
    ),
}  # fmt: skip

# Nobody sees whether they do something here: no file is in the way of --force, nothing is quantised
# and little computed again, a search has one answer, checks find nothing wrong, times are not
# compared, the scale of adapters has no size, the networks have no convolution and few classes, and
# a constant of other numbers takes as many bytes.
UNSEEN = frozenset({
    "force", "time_limit", "prove", "seed", "jobs", "no_cache", "repeat", "check_nan",
    "check_arena", "max_turns", "max_dynamic", "allow_new", "fail_on_stale", "exit_zero",
    "fail_on", "opset", "ste", "barrier", "lora_alpha", "rslora", "exact_conv",
    "fuse_loss",
    "model", "values",
})  # fmt: skip


# The operators of a model, which ops lists, depend on its sizes in few, and a check is run to see
# that it takes what was planned; a few steps are all better than the one before.  The networks have
# no value with three gradients: two have one sum.
QUIET = frozenset({
    ("check", "run"), ("train", "patience"), ("train", "result"), *(("ops", n) for n in SIZES),
    ("train", "accumulate"),
})  # fmt: skip

# Without parameters the model has no tensor that is large enough to lie beside it, and the sum that
# gives h with an adapter is dropped unasked.  Two examples at a time are two parts of a batch of
# four, in which nothing is worth computing again; of few steps the same ones keep a checkpoint.
# A frontier has few points where few parameters have a gradient, or where state outweighs them.
# With a head there is one output, of which a training keeps the loss alone.
IDLE = frozenset({
    ("external_data", "params_as_inputs"), ("drop", "lora"), ("micro_batches", "dims"),
    ("micro_batches", "plan"), ("plan", "dims"), ("steps", "checkpoint_every"),
    ("batch", "checkpoint_every"), ("checkpoint_every", "keep"), ("head", "only_loss"),
    ("every", "head"),
    ("patience", "keep"), *(("points", name) for name in ("optimizer", "wrt", "input_grad")),
})  # fmt: skip


# What shows a part of a step need not show what moved elsewhere: one node that is explained, the
# bytes of tensors, the largest of them, a value that is fetched without the rest.
PARTS = {
    ("mirror", "--explain"): "keep drop grad_buffers optimizer_option lr_scale only_loss "
    "grad_norm",
    ("mirror", "--by"): "policy keep drop fuse_attention",
    ("compare", "--by"): "plans no_grad accumulate grad_buffers fuse_attention only_loss",
    ("compare", "--top"): "top", ("run", "--fetch"): "plan labels optimizer",
    ("run", "--explain-kernels"): "only_loss", ("run", "--format"): "accumulate grad_norm",
    ("run", "--head-grads"): "fuse_attention",
    ("run", "--engine"): "accumulate", ("recompute", "--frontier"): "accumulate",
    ("recompute", "--max-batch"): "accumulate no_grad fuse_attention grad_buffers clip_value "
    "optimizer_option lr_scale sparse grad_norm",
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What a command line came to; `refused` is the one line that says why it did nothing."""

    code: int
    out: str
    err: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def refused(self) -> str | None:
        last = self.err.strip().rpartition("\n")[2]
        good = self.code == 2 and not self.out and last.startswith("gradtool: ")
        return last if good else None


class Walk:
    """Command lines run in folders of their own, each once."""

    def __init__(self, models: Path) -> None:
        self.models = models
        self.seen: dict[tuple[str, ...], Seen] = {}

    def prepare(self) -> None:
        """Make what options name: models, inputs, a plan, times, reports, a repository."""
        (self.models / "net.onnx").write_bytes(net().SerializeToString())
        (self.models / "two.onnx").write_bytes(net(32).SerializeToString())
        rng = np.random.default_rng(1)
        x = rng.standard_normal((5, 2, 8, 8)).astype(np.float32)
        np.savez(self.models / "made.npz", x=x, labels=np.arange(5) % 4)
        for name, count in (("train.npz", 32), ("test.npz", 6)):
            x = rng.standard_normal((count, 2, 8, 8)).astype(np.float32)
            y = rng.integers(0, 4, (2, count))
            target = rng.standard_normal((count, 4)).astype(np.float32)
            np.savez(self.models / name, x=x, labels=y[0], other=y[1], target=target)
        for arguments in (
            ("-q", "recompute", "net.onnx", "--strategy", "optimal", "-o", "made.json"),
            ("-q", "run", "net.onnx", "--batch", "1", "--profile", "times.json"),
            ("-q", "grad", "net.onnx", "-o", "made.onnx"),
            ("-q", "kit", "net.onnx", "--lora", "2", "-o", "made.kit"),
        ):
            assert run(self.models, arguments).code == 0, arguments
        for name, batch in (("one.json", "1"), ("two.json", "2")):
            shown = run(self.models, ("report", "net.onnx", "--batch", batch, "--format", "json"))
            (self.models / name).write_text(shown.out)
        (self.models / "gradtool.toml").write_text(
            '[check]\nfail-on = ["peak:0%"]\n[[case]]\nmodel = "net.onnx"\ndims = { batch = 4 }\n'
        )

    def __call__(self, *arguments: str) -> Seen:
        if arguments not in self.seen:
            with tempfile.TemporaryDirectory() as folder:
                shutil.copytree(self.models, folder, copy_function=os.link, dirs_exist_ok=True)
                self.seen[arguments] = run(Path(folder), arguments)
        return self.seen[arguments]

    def fault(self, command: str, base: list[str], first: str, second: str) -> str | None:
        """What is wrong with a pair of options; None if it is refused, or does something."""
        options = COMMANDS[command][1]
        a, b = options[first], options[second]
        both = self(command, *base, *a, *b)
        line = " ".join([command, *base, *a, *b])
        if both.code not in (0, 1, 2, 3) or (both.code == 2 and both.refused is None):
            return f"{line}: exit {both.code}: {both.err.strip()[-300:]}"
        if both.code in (2, 3):
            return None
        for added, other in ((second, a), (first, b)):
            if added in UNSEEN or (command, added) in QUIET or (first, second) in IDLE:
                continue
            if any(added in PARTS.get((command, flag), "").split() for flag in line.split()):
                continue
            alone = self(command, *base, *other)
            if alone != both:
                continue
            if "form" not in (first, second):
                exact = ("--format", "json")
                more = self(command, *base, *a, *b, *exact)
                if more.refused is None and more != self(command, *base, *other, *exact):
                    continue
            return f"{line}: {added} changes nothing"
        return None


def run(folder: Path, arguments: tuple[str, ...]) -> Seen:
    """A command line in a folder, and the files that it wrote there."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = set(folder.rglob("*"))
    with (
        contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        code = cli.run([str(each) for each in arguments])
    written = tuple(
        (str(path.relative_to(folder)), _plain(path.read_bytes()))
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path not in before
    )
    shown = [_plain(stream.buffer.getvalue()).decode("utf-8", "replace") for stream in (out, err)]
    return Seen(code, shown[0], shown[1], written)


def _plain(data: bytes) -> bytes:
    """What was printed or written, without times and what is measured."""
    data = re.sub(rb"\d[\d.]* (ms|\xc2\xb5s|s)\b", b"TIME", data)
    data = re.sub(rb"\d[\d.]* (B|[KMG]iB) measured", b"SIZE", data)
    return re.sub(rb'"(seconds|ns|ts|dur)": ?[\d.e-]+', b"TIME", data)


def pairs() -> Iterator[tuple[str, list[str], str, str]]:
    """Every pair of options of every command, on top of each of its uses that has neither."""
    for command, (bases, options) in COMMANDS.items():
        for base in bases:
            added = [name for name, words in options.items() if not set(words) <= set(base)]
            for first, second in itertools.combinations(added, 2):
                yield command, base, first, second


def parameters(command: str) -> dict[str, click.Parameter]:
    """The options of a command, by name."""
    found = group.get_command(click.Context(group), command)
    assert found is not None
    return {p.name: p for p in found.params if isinstance(p, click.Option) and p.name}
