"""A model from a file, in the form that everything here works on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import onnx
import onnx_ir as ir

from gradtool import io
from gradtool.arguments import Seed, checked
from gradtool.graph import walk
from gradtool.graph.defaults import take_defaults
from gradtool.graph.families import CONTRIB, PREVIEW
from gradtool.graph.metadata import ALIASES, BARRIER, FORM, notes
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import mark_spare, prune
from gradtool.io.definitions import expand_definitions
from gradtool.io.read import Held
from gradtool.operators.losses import OF_CLASSES
from gradtool.operators.recurrence import GATES
from gradtool.ops import gradients, kernels
from gradtool.ops.composites.calls import is_inlined
from gradtool.shapes import infer
from gradtool.shapes.inference import register_shapes
from gradtool.text.words import some

# Last operators of a decoder's cache among the outputs (see `passes.caches`).
_GROWING = ("Attention", "Cast", "Concat", "Identity", "If", "ScaledAttention", "Transpose")
SIMPLIFIED = "SimplifiedLayerNormalization"  # which onnxruntime writes in the standard's domain


@checked
def load(
    source: str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch: int | None = None,
    values: Mapping[str, object] | None = None,
    opset: int | None = None,
    head: str | None = None,
    seed: Seed = 0,
    keep_cache: bool = False,
) -> ir.Model:
    """A model from a file or from memory, checked, typed and shaped; weights stay on disk.

    An older model is raised to `opset`, to 18 at least; what never runs once `values` are set is
    left out.

    Args:
        source: a path (`-`: standard input), the bytes of a file, an `onnx.ModelProto` or an
            `ir.Model`; what is in memory is left as it is.
        dims: sizes of symbols, by name.
        shapes: shapes of whole inputs, by name.
        batch: the size of the leading symbol of the first input, which may be fixed at 1.
        values: values of inputs that are constants from then on, by name.
        opset: the version of the standard operators; by default that of the file, at least 18.
        head: `NAME:CLASSES`: a new linear layer on a value, in place of all outputs, for transfer
            learning (docs/training.md).
        seed: that of the numbers in a new head.
        keep_cache: a decoder's key/value caches stay inputs and outputs; by default they are
            empty, and their outputs are left out.

    Returns:
        The model of onnx-ir.

    Raises:
        ModelError: the file is missing, damaged or not a valid model.
        UsageError: a symbol or an input does not exist, or a size, value or opset contradicts it.

    Example:
        model = gt.load("samples/cnn.onnx", dims={"batch": 8})
        model.graph.inputs[0].shape  # [8, 3, 32, 32]
    """
    register_shapes()
    found = os.fspath(source) if isinstance(source, str | os.PathLike) else Held(source)
    how: dict[str, Any] = {
        "dims": dims, "shapes": shapes, "batch": batch, "values": values, "opset": opset,
        "keep_function": _has_rule,
        "rewrite": partial(_rewrite, batch=batch, keep_cache=keep_cache),
    }  # fmt: skip
    model = io.load(found, **how)
    if head is not None:
        from gradtool.workloads.heads import HEADED, with_head

        held, said = with_head(model, head, seed)
        (model := io.load(held, **how)).meta[HEADED] = said
    if any(node.op_type in GATES for node in walk.nodes(model.graph)):
        from gradtool.passes.lower_recurrent import lower_recurrent

        lower_recurrent(model)
    return model


def _rewrite(model: ir.Model, batch: int | None, *, keep_cache: bool) -> None:
    """Bring a model into our form, and open a batch fixed at one if another is given.

    Raises:
        UsageError: what keeps it from being opened.
    """
    said = {value.name or "": value.shape for value in model.graph.outputs}
    read = [value for value in model.graph.inputs if is_used(value)]
    sizes = io.symbols(model)
    mark_spare(model)
    lowered = _fold(model)
    lines: Sequence[str] = ()
    if keep_cache or any(map(_may_be_grown, model.graph.outputs)):
        from gradtool.passes import caches

        if keep_cache:
            caches.keep(model, said, inferred=lowered)
        else:
            lines = caches.take_as_empty(model, said, inferred=lowered)
    if lowered:
        from gradtool.passes._contrib_attention import refuse_windowed_caches

        refuse_windowed_caches(model.graph)
    _leave_out(model, [v for v in read if v in model.graph.inputs], sizes, lines)
    if batch in (None, 1):
        return
    from gradtool.passes.open_batch import is_fixed_at_one, open_batch

    if is_fixed_at_one(model):
        open_batch(model)


def _may_be_grown(value: ir.Value) -> bool:
    """Whether an output may be a cache and what was added, as far as its last node says."""
    node = value.producer()
    return node is not None and node.op_type in _GROWING


def _leave_out(
    model: ir.Model, read: Sequence[ir.Value], sizes: Sequence[str], lines: Sequence[str]
) -> None:
    """Remove inputs that nothing reads any more, and note it beside other lines for people.

    Lengths of sequences are such: attention hides what comes later.
    """
    if any(not is_used(value) for value in read):
        from gradtool.io.constants import leave_out

        gone = some(leave_out(model, read))
        lines = (*lines, f"left aside: {gone}: no operator of the training graph reads it")
    model.meta[FORM] = tuple(lines)
    if lines:
        now = io.symbols(model)
        left = dict.fromkeys(name for name in sizes if name not in now)
        model.meta[ALIASES] = {**left, **model.meta.get(ALIASES, {})}


def _fold(model: ir.Model) -> bool:
    """Put composite calls back, with the sizes left open that were open when they were written.

    Nodes that ask for gradients are replaced by them, and operators without a kernel that ONNX
    defines by others by their definition.  Returns whether operators of onnxruntime were replaced.
    """
    take_defaults(model)
    if any(BARRIER in notes(node) for node in walk.nodes(model.graph)):
        from gradtool.passes.ort_allocator.strip_barriers import strip_barriers

        strip_barriers(model)
    if any(node.op_type in OF_CLASSES for node in walk.nodes(model.graph)):
        from gradtool.passes.refuse_labels import accept_labels

        if accept_labels(model):
            prune(model, spare=False)
    expand_definitions(model, _has_kernel)
    while is_inlined(model):  # a body may be known only once those before it are calls again
        from gradtool.ops.composites.outline import outline

        infer(model)
        if not outline(model):
            break
        prune(model, spare=False)
    found = walk.domains(model.graph)
    lowered = False
    if CONTRIB in found or any(n.op_type == SIMPLIFIED for n in walk.nodes(model.graph)):
        from gradtool.passes.lower_contrib import is_contrib, lower_contrib

        if any(is_contrib(node) for node in walk.nodes(model.graph)):
            infer(model)
            lower_contrib(model)
            prune(model, spare=False)
            lowered = True
    if PREVIEW in found:
        from gradtool.passes.lower_gradient import is_gradient, lower_gradients, publish_gradients

        if any(is_gradient(node) for node in model.graph):
            infer(model)
            publish_gradients(model, lower_gradients(model))
    return lowered


def _has_kernel(domain: str, name: str, version: int) -> bool:
    return kernels.find(domain, name, version) is not None


def _has_rule(domain: str, name: str) -> bool:
    return gradients.find(domain, name, 1) is not None
