"""From what the user typed to a model: found, loaded, differentiated if it must be."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands.output import say, say_table
from gradtool.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.passes.training import TrainingGraph

LAST = Path(".gradtool") / "last.json"
OURS = b"gradtool.gradients"  # metadata of every file with gradients that we write


def open_model(
    ctx: click.Context,
    source: str,
    dims: Sequence[str] = (),
    shapes: Sequence[str] = (),
    batch: int | None = None,
    opset: int | None = None,
) -> ir.Model:
    """Load a model with the flags of `size_options`, at least at `opset`."""
    from gradtool import api
    from gradtool.io import parse_dim, parse_shape

    loaded = api.load(
        source,
        dims=_unique(map(parse_dim, dims), "--dim"),
        shapes=_unique(map(parse_shape, shapes), "--shape"),
        batch=batch,
        opset=opset,
    )
    raised = loaded.meta.get("gradtool.raised_from")
    if raised:
        version = loaded.graph.opset_imports.get("", 0)
        why = "the gradient rules need it" if opset is None else "asked for"
        say(ctx, f"raised from opset {raised} to {version}: {why}")
    return loaded


def _unique(pairs: Iterable[tuple[str, Any]], flag: str) -> dict[str, Any]:
    """The pairs as a dictionary. Raises UsageError if a name has two values."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} {name}: given as {found[name]} and as {value}")
    return found


def training_of(ctx: click.Context, loaded: ir.Model, options: dict[str, Any]) -> ir.Model:
    """The training graph of a model: itself if it holds gradients and no loss is named."""
    from gradtool import api

    named = options["loss"] not in ("auto", ["auto"]) or options["head_grads"]
    if api.is_training_graph(loaded) and not named:
        if options.get("update", "none") != "none":
            raise UsageError("--optimizer: the model holds its gradients; give the forward model")
        return loaded
    made = differentiate(ctx, loaded, options)
    count = len(made.gradients) + len(made.updates)
    say(ctx, f"loss: {made.loss_said}   parameters: {count} of {made.candidates}")
    return made.model


def differentiate(ctx: click.Context, model: ir.Model, options: dict[str, Any]) -> TrainingGraph:
    """`api.grad` with the flags of `grad_options`; operators in its way are shown as a table."""
    from gradtool import api
    from gradtool.passes.backward import Offenders

    try:
        made = api.grad(
            model,
            loss=options["loss"],
            labels=_labels(options["labels"]),
            wrt=expand(options["wrt"]) if options["wrt"] else None,
            no_grad=expand(options["no_grad"]),
            input_grad=expand(options["input_grad"]),
            head_grads=options["head_grads"],
            accumulate=options["accumulate"],
            train_mode=options["train_mode"],
            ste=options["ste"],
            grad_buffers=options["grad_buffers"],
            loss_seed=options.get("loss_seed", False),
            optimizer=options.get("update", "none"),
        )
    except Offenders as error:
        from gradtool.reports.training import offenders_table

        say_table(ctx, offenders_table(error.rows))
        raise
    for warning in made.warnings:
        say(ctx, f"warning: {warning}")
    return made


def _labels(given: Sequence[str]) -> dict[str, str]:
    """By output the name of its labels; the empty output stands for the others."""
    names: dict[str, str] = {}
    for text in given:
        output, _, name = text.rpartition("=")
        if not name or names.setdefault(output, name) != name:
            raise UsageError(f"--labels {text}: write NAME once, or OUTPUT=NAME once per output")
    return names


def expand(patterns: Sequence[str]) -> list[str]:
    """The patterns, with `@file` replaced by the lines of the file."""
    found: list[str] = []
    for pattern in patterns:
        if not pattern.startswith("@"):
            found.append(pattern)
            continue
        try:
            lines = Path(pattern[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{pattern}: cannot be read: {reason}") from error
        found += [line for line in lines if line.strip()]
    return found


def discover(ctx: click.Context) -> str:
    """The model meant when none is named: of the cases, the last one here, or the only one.

    Raises:
        UsageError: there is no model here, or several.
    """
    configured = _configured(ctx)
    if configured is not None:
        return configured
    last = None if os.environ.get("CI") else _last()
    if last is not None:
        say(ctx, f"model: {last} (the last 'gradtool grad' here)")
        return last
    found = [str(path) for path in sorted(Path().glob("*.onnx")) if not is_ours(path)]
    if len(found) == 1:
        say(ctx, f"model: {found[0]} (the only one here)")
        return found[0]
    if not found:
        raise UsageError("no MODEL given, and there is no .onnx file in this folder")
    raise UsageError(f"no MODEL given; here are {', '.join(found)}")


def _configured(ctx: click.Context) -> str | None:
    """The model of all cases of the configuration, None where there is no case."""
    from gradtool.commands.configured import configuration

    found = configuration(ctx)
    if found is None or not found.cases:
        return None
    paths = list(dict.fromkeys(str(case.path) for case in found.cases))
    if len(paths) > 1:
        raise UsageError(f"no MODEL given; the cases of {found.path} are of {', '.join(paths)}")
    say(ctx, f"model: {paths[0]} (of the cases in {found.path})")
    return paths[0]


def remember(path: str) -> None:
    """Note the model of a `grad`, with its hash, for later commands in this folder."""
    if path == "-":
        return
    try:
        note = {"model": path, "sha256": _digest(Path(path))}
        LAST.parent.mkdir(exist_ok=True)
        (LAST.parent / ".gitignore").write_text("*\n", encoding="utf-8")
        LAST.write_text(json.dumps(note) + "\n", encoding="utf-8")
    except OSError:
        return  # a folder that cannot be written to has no memory


def _last() -> str | None:
    try:
        note = json.loads(LAST.read_text(encoding="utf-8"))
        path = str(note["model"])
        return path if _digest(Path(path)) == note["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _digest(path: Path) -> str:
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_ours(path: Path) -> bool:
    """Whether we wrote this file: its metadata lies in it as plain text."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(OURS) >= 0
    except (OSError, ValueError):
        return False
