"""Places of maxima without the second output of MaxPool, which not every runtime has.

A place is that of the first tap equal to the maximum: a Slice, a comparison and a choice for each
tap.  Runtimes without Indices compute it, onnxruntime's WebGPU build among them; where windows
overlap it takes more time than Indices do, so it is asked for.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.prune import succeed
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.windows import Window
from gradtool.ops.pool.body import place_type

PLACE = ir.DataType.INT32
SIZES = {("", "Shape", 0), ("", "Size", 0)}
POOLS = (("", "MaxPool"), ("ai.onnx", "MaxPool"), (DOMAIN, "MaxPoolTraining"))


def portable(model: ir.Model, op: Builder) -> int:
    """Let each maximum's place be computed by plain operators, in place. Returns how many are.

    Indices that anything but the gradient reads stay as they are; those that a half of a step saves
    for the other keep their type.
    """
    saved = frozenset(TrainingInfo.of(model).saved or ())
    nodes = [node for node in walk.nodes(model.graph) if _has_places(node, saved)]
    return sum(_replace(op, node) for node in nodes)


def _has_places(node: ir.Node, saved: frozenset[str | None]) -> bool:
    if (node.domain, node.op_type) not in POOLS or len(node.outputs) < 2:
        return False
    places = node.outputs[1]
    readers = {(u.node.domain, u.node.op_type, u.idx) for u in places.uses()} - SIZES
    if places.is_graph_output():
        in_rows = not node.attributes.get_int("storage_order", 0)  # as the other half reads them
        return places.name in saved and not readers and in_rows
    return readers == {(DOMAIN, "MaxPoolGrad", 1)}


def _replace(op: Builder, node: ir.Node) -> bool:
    """Replace a MaxPool of two outputs by one of one output and the places."""
    x, given = node.inputs[0], arguments(node)
    assert x is not None and x.shape is not None  # noqa: PT018, S101 - a graph has both
    order = given.pop("storage_order", 0)
    try:
        window = Window.of(given["kernel_shape"], x.shape[2:], given, pool=True)
    except ValueError:
        return False
    props = node.metadata_props
    stage, source = props.get(STAGE, "forward"), props.get(SOURCE, "")
    with op.at(node, stage=stage, source=source, prefix=node.name or ""), op.arithmetic():
        y = op.MaxPool(x, **given)
        kind = node.outputs[1].dtype if node.outputs[1].is_graph_output() else None
        places = _places(op, x, y, window, kind, ceil=bool(given.get("ceil_mode", 0)))
    for use in node.outputs[1].uses() if order else ():
        if use.node.op_type == "MaxPoolGrad":
            use.node.attributes["storage_order"] = ir.AttrInt64("storage_order", 0)
    for before, after in zip(node.outputs, (y, places), strict=True):
        after.shape = before.shape
        succeed(after, before)
    assert node.graph is not None  # noqa: S101 - a node found in a graph
    node.graph.remove(node, safe=True)
    return True


def _places(
    op: Builder, x: Any, y: Any, window: Window, kind: ir.DataType | None, *, ceil: bool
) -> ir.Value:
    """The places of maxima: within their plane if it is known to be small, else in all of x.

    `kind` is the type that they must have, which says the same.
    """
    sizes = [_number(op, d) for d in x.shape[2:]]
    row = [math.prod(sizes[a + 1 :], start=1) for a in range(window.rank)]  # elements per step
    base = _lattice(op, y.shape[2:], window, row)
    place = _first_tap(op, x, y, window, row, ceil=ceil) + base
    plane = math.prod(sizes, start=1)
    place = op.Clip(place, _scalar(op, 0), _scalar(op, plane - 1))  # a NaN equals no tap
    if kind is None:
        kind = place_type(plane) if isinstance(plane, int) else ir.DataType.INT64
    if kind != ir.DataType.INT64:
        return op.Cast(place, to=kind)
    count = op.ReduceProd(op.size_of(x, 0, 2), keepdims=0)
    planes = op.Range(op.constant(0), count, op.constant(1))
    leading = op.Concat(op.size_of(x, 0, 2), [1] * window.rank, axis=0)
    far = op.Reshape(planes, leading) * op.cast(_scalar(op, plane), kind)
    whole: ir.Value = op.cast(place, kind) + far
    return whole


def _first_tap(op: Builder, x: Any, y: Any, window: Window, row: list[Any], *, ceil: bool) -> Any:
    """The offset of the first tap equal to the maximum from the first one of its window."""
    axes, more = range(2, 2 + window.rank), [s - 1 if ceil else 0 for s in window.strides]
    ends = [e + m for e, m in zip(window.end, more, strict=True)]
    if any(window.begin) or any(ends):
        nothing = op.constant(np.nan, x.dtype)
        x = op.pad(x, [*window.begin, *ends], list(axes), value=nothing)
    found = None
    taps = itertools.product(*(range(k) for k in window.kernel))
    for tap in reversed(list(taps)):
        first = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        far = _scalar(op, sum(f * r for f, r in zip(first, row, strict=True)))
        if found is not None:
            seen = op.Slice(x, first, _ends(op, y, first, window), list(axes), window.strides)
            far = op.Where(op.Equal(seen, y), far, found)
        found = far
    return found


def _ends(op: Builder, y: Any, first: list[int], window: Window) -> Any:
    """The ends of slices from `first` on with as many elements as y."""
    out = y.shape[2:]
    if all(isinstance(n, int) for n in out):
        return [f + (n - 1) * s + 1 for f, n, s in zip(first, out, window.strides, strict=True)]
    begins = op.constant([f + 1 for f in first])
    return (op.size_of(y, 2, 2 + window.rank) - 1) * op.constant(list(window.strides)) + begins


def _lattice(op: Builder, out: Any, window: Window, row: list[Any]) -> Any:
    """The place of the first tap of every window, `[*out]`."""
    total = None
    for axis, (size, step) in enumerate(zip(out, window.strides, strict=True)):
        apart = [1] * (window.rank - axis - 1)
        if isinstance(size, int):
            places = np.arange(size) * step - window.begin[axis]
            line = op.constant(places.astype(np.int32).reshape(-1, *apart))
        else:
            numbers = op.Range(_scalar(op, 0), _number(op, size), _scalar(op, 1))
            line = op.unsqueeze(numbers * step - window.begin[axis], range(1, len(apart) + 1))
        line = line * _scalar(op, row[axis])
        total = line if total is None else total + line
    return total


def _number(op: Builder, size: Any) -> Any:
    """A size as an integer, or as a computed scalar."""
    return size if isinstance(size, int) else op.cast(op.Squeeze(op.size(size), [0]), PLACE)


def _scalar(op: Builder, number: Any) -> Any:
    return op.constant(np.int32(number)) if isinstance(number, int) else number
