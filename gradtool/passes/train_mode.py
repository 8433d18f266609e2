"""Operators that differ between training and inference, and random ones.

A file says which of the two it means, and most say inference.  `--train-mode` asks for training:
BatchNormalization by the statistics of the batch, Dropout that drops.  A norm whose parameters are
frozen stays in its form for inference, but where it is asked for by its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import succeed
from gradtool.graph.randomness import may_draw
from gradtool.losses.output_heads import LAYOUTS
from gradtool.passes.exporters import REMEDY, folded
from gradtool.passes.parameters import Role, Roles
from gradtool.passes.provenance import module
from gradtool.passes.selection import Selection
from gradtool.text.words import some, suggest

TrainMode = bool | str | Sequence[str]  # all that trains, or the names and globs of norms
NOTHING = (
    "--train-mode: the model has no BatchNormalization and no Dropout "
    "(exporters leave Dropout out of models for inference, and fold BatchNormalization into the "
    f"layer before: {REMEDY})"
)
NO_NORM = (
    "--train-mode: the model has Dropout and no BatchNormalization (if there was one, the exporter "
    f"folded it into the layer before: {REMEDY})"
)
BY_THE_RUNTIME = (
    "Dropout in a branch or a loop: drawn by the runtime's own generator, so that neither a seed "
    "nor a step decides it"
)


def train(model: ir.Model, op: Builder, asked: TrainMode) -> list[str]:
    """Turn BatchNormalization and Dropout to training, in place. Returns warnings.

    Norms are those that `asked` names, where it names some; others are turned to inference.

    Raises:
        UsageError: a glob matches no norm.
    """
    from gradtool.passes.counted_dropout import count_draws

    found = [n for n in walk.nodes(model.graph) if _is(n, "BatchNormalization")]
    drops = [n for n in walk.nodes(model.graph) if _is(n, "Dropout")]
    globs = None if isinstance(asked, bool) else [asked] if isinstance(asked, str) else asked
    norms = found if globs is None else _named(found, globs)
    for node in found:
        if node in norms:
            _by_the_batch(node, op)
        else:
            infer_by(node, op)
    inner = [n for n in drops if n.graph is not model.graph]
    for node in inner:
        _that_drops(node, op)
    count_draws(op, [n for n in drops if n.graph is model.graph])
    if not norms and not drops:
        return [NOTHING]
    said = []
    convolves = any(n.op_type in ("Conv", "ConvTranspose") for n in model.graph)
    if not norms and convolves and not folded(model.graph):
        said.append(NO_NORM)
    if len(norms) < len(found):
        rest = len(found) - len(norms)
        said.append(f"{rest} BatchNormalization in inference form: --train-mode names others")
    if inner:
        said.append(f"{len(inner)} {BY_THE_RUNTIME}")
    still = sum(n.graph is not model.graph for n in norms)
    if still:
        said.append(f"{still} BatchNormalization in a branch or a loop: its statistics do not move")
    return said


def _named(norms: Sequence[ir.Node], globs: Iterable[str]) -> list[ir.Node]:
    """The norms whose node, module or tensors have a name matched by a glob."""
    found: set[ir.Node] = set()
    for glob in globs:
        matched = {node for node in norms if _matches(_names(node), [glob])}
        if not matched:
            known = [name for node in norms for name in _names(node)]
            hint = suggest(glob, known) or f"; there are {some(known, 5) or 'none'}"
            raise UsageError(f"--train-mode={glob}: no such BatchNormalization{hint}")
        found |= matched
    return [node for node in norms if node in found]


def _names(node: ir.Node) -> list[str]:
    """The names of a norm for people."""
    tensors = (v.name for v in map(_origin, node.inputs[1:5]) if v is not None)
    return list(dict.fromkeys(filter(None, (node.name, module(node), *tensors))))


def _matches(names: Collection[str], globs: Iterable[str]) -> bool:
    return any(name == glob or fnmatchcase(name, glob) for glob in globs for name in names)


def _origin(value: ir.Value | None) -> ir.Value | None:
    """The source tensor of a value, layouts left out."""
    while value is not None:
        node = value.producer()
        if node is None or node.op_type not in LAYOUTS:
            break
        value = node.inputs[0]
    return value


def freeze(
    op: Builder,
    roles: Roles,
    picked: Selection,
    wrt: Sequence[str] | None,
    no_grad: Sequence[str],
    asked: TrainMode,
) -> list[str]:
    """Turn norms with frozen parameters to inference, in place; return the warnings.

    Frozen are those by `wrt` and `no_grad`; a norm without parameters goes by its own names.  Where
    norms are `asked` for by name, all are as that says.
    """
    if not isinstance(asked, bool) or (wrt is None and not no_grad):
        return []

    def is_frozen(node: ir.Node) -> bool:
        own = [v for v in map(_origin, node.inputs[1:3]) if v is not None]
        own = [v for v in own if roles.get(v) in (Role.PARAMETER, Role.INPUT)]
        if own and wrt is not None:
            return not any(v in picked.wrt for v in own)
        if own:
            return all(v in picked.cut_off for v in own)
        names = _names(node)
        return _matches(names, no_grad) or (wrt is not None and not _matches(names, wrt))

    frozen = [n for n in walk.nodes(op.graph) if n.op_type == "BatchNormalizationTraining"]
    frozen = [node for node in frozen if is_frozen(node)]
    for node in frozen:
        infer_by(node, op)
    if not frozen:
        return []
    flags = " and ".join(["--wrt"] * (wrt is not None) + ["--no-grad"] * bool(no_grad))
    listed = some((node.name or node.op_type for node in frozen), 5)
    said = f"{len(frozen)} BatchNormalization in inference form, {flags} freezes its parameters"
    return [f"{said} (--train-mode=GLOB trains by name): {listed}"]


def infer_by(node: ir.Node, op: Builder) -> None:
    """Turn a norm to its form for inference, in place: by the running statistics, which stay."""
    for result, kept in zip(node.outputs[1:3], node.inputs[3:5], strict=False):
        if is_used(result):
            with op.at(node, stage="forward", source="", prefix=node.name or ""):
                same = op.Identity(kept)
            succeed(same, result)
    node.op_type, node.domain = "BatchNormalization", ""
    node.attributes.pop("training_mode", None)
    node.resize_outputs(1)


def _is(node: ir.Node, op_type: str) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type == op_type


def _by_the_batch(node: ir.Node, op: Builder) -> None:
    """A norm with outputs for the new running mean and variance, unused by the file."""
    node.attributes["training_mode"] = ir.AttrInt64("training_mode", 1)
    node.resize_outputs(3)
    for old, new in zip(node.inputs[3:5], node.outputs[1:], strict=True):
        new.name = new.name or op.names.fresh(f"{old.name if old else node.name}_next")
    op.infer(node)


def _that_drops(node: ir.Node, op: Builder) -> None:
    """A Dropout with the ratio of the file."""
    if len(node.inputs) < 3:
        node.resize_inputs(3)
    node.replace_input_with(2, op.constant(np.array(True)))


def in_inference(model: ir.Model) -> list[str]:
    """A warning about running statistics taken as constants."""
    count = sum(
        _is(n, "BatchNormalization") and not n.attributes.get_int("training_mode", 0)
        for n in model.graph
    )
    said = "BatchNormalization in inference mode: running statistics are constants (--train-mode)"
    return [f"{count} {said}"] if count else []


def at_random(model: ir.Model) -> list[str]:
    """A warning with the operators whose results differ from run to run."""
    counts = Counter(n.op_type for n in walk.nodes(model.graph) if _draws(n))
    if not counts:
        return []
    listed = ", ".join(f"{count} {op}" for op, count in sorted(counts.items()))
    return [f"drawn at random, every run differs (fix it by the attribute seed): {listed}"]


def _draws(node: ir.Node) -> bool:
    return "seed" not in node.attributes and may_draw(node)
