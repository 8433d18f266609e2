"""The value under a new head, and how the head is put there: `--head NAME:CLASSES`."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.predicates import is_float
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import heads, original, read
from gradtool.losses.output_heads import ending
from gradtool.text.words import some, suggest

HEADED = "gradtool.headed"  # in memory: lines for people about the head
IMAGE_RANKS = (4, 5)


def with_head(model: ir.Model, text: str, seed: int) -> tuple[read.Held, str]:
    """The message of a loaded model with a new head, and what to tell people of it.

    Raises:
        UsageError: there is no such value, its features are not known, or it is none of floats.
    """
    name, classes = _parsed(text)
    if TrainingInfo.of(model).is_training_graph:
        raise UsageError(f"--head {text}: the model holds its gradients already")
    value = _value(model, name, text)
    features = _before_classifier(model, value)
    axis = 1 if len(features.shape or ()) in IMAGE_RANKS else -1
    head = _head(features, classes, axis, seed, text)
    source = original.source_of(model.meta)
    path = source if isinstance(source, Path) else None
    message = read.message(source)
    made = heads.attach(message, head)
    of = f"{head.value!r}" + (", averaged over its places," if head.pooled else "")
    said = (
        f"head: {head.features} features of {of} to {classes} classes: {made.weight}, {made.bias}, "
        f"in place of {some(made.dropped)}"
    )
    return read.Held(message, path), said


def _parsed(text: str) -> tuple[str, int]:
    name, _, classes = text.rpartition(":")
    if not name or not classes.isascii() or not classes.isdigit() or int(classes) < 1:
        raise UsageError(f"--head {text}: write NAME:CLASSES, as in features:10")
    return name, int(classes)


def _value(model: ir.Model, name: str, text: str) -> ir.Value:
    made = {v.name: v for node in model.graph for v in node.outputs if v.name}
    known = {**{v.name or "": v for v in model.graph.inputs}, **made}
    if name not in known:
        outputs = some(v.name or "" for v in model.graph.outputs)
        raise UsageError(
            f"--head {text}: no such value{suggest(name, known)} (the model returns {outputs})"
        )
    return known[name]


def _before_classifier(model: ir.Model, value: ir.Value) -> ir.Value:
    """The features of the last layer, behind a value of its scores or probabilities."""
    for output in model.graph.outputs:
        last = ending(output)
        scores = ending(last.scores) if last.activation else last
        if not scores.linear or value not in (output, last.scores, scores.scores):
            continue
        node = scores.node
        weight = None if node is None or len(node.inputs) < 2 else node.inputs[1]
        is_layer = node is not None and node.op_type in ("Gemm", "MatMul")
        if is_layer and node and weight is not None and weight.is_initializer() and node.inputs[0]:
            return node.inputs[0]
    return value


def _head(value: ir.Value, classes: int, axis: int, seed: int, text: str) -> heads.Head:
    shape = value.shape
    if not is_float(value) or value.dtype is None or shape is None or len(shape) < 2:
        raise UsageError(
            f"--head {text}: {value.name!r} is {value.dtype}{shape}: a head reads floats of "
            "[batch, features], [batch, ..., features] or [batch, channels, height, width]"
        )
    features = shape[axis]
    if not isinstance(features, int):
        raise UsageError(
            f"--head {text}: {value.name!r} has shape {shape}: the number of features is open"
        )
    return heads.Head(
        value.name or "", classes, features, len(shape), value.dtype, pooled=axis == 1, seed=seed
    )
