"""Lengths of operands: one number, one for each axis, or one for each output."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

Count = Callable[[ir.Node], int | None]


def broken(node: ir.Node) -> str | None:
    """The reason why an input of a node has too few or too many numbers; None if unknown.

    An operand read as a vector is no matrix.
    """
    for slot in VECTORS.get(node.op_type, ()):
        value = node.inputs[slot] if slot < len(node.inputs) else None
        if value is not None and value.shape is not None and len(value.shape) > 1:
            return f"input {value.name!r} has {len(value.shape)} axes; it must be a vector"
    for slot, count, what in RULES.get(node.op_type, ()):
        value = node.inputs[slot] if slot < len(node.inputs) else None
        if value is None or value.shape is None or not value.shape.is_static():
            continue
        found, needed = _elements(value.shape), count(node)
        if found == 0 and node.op_type == "Resize":
            continue  # an absent one, as old exporters write it
        if needed is not None and found != needed:
            plural = "" if found == 1 else "s"
            return (
                f"input {value.name!r} has {found} number{plural}; there must be {needed}, {what}"
            )
    return None


def _elements(shape: ir.Shape) -> int:
    total = 1
    for size in shape.numpy():
        total *= size
    return total


def _one(_node: ir.Node) -> int:
    return 1


def _rank(node: ir.Node) -> int | None:
    x = node.inputs[0]
    return None if x is None or x.shape is None else len(x.shape)


def _axes(node: ir.Node) -> int | None:
    """The number of axes named in an attribute or an input, or of all."""
    if "axes" in node.attributes:
        return len(node.attributes["axes"].as_ints())
    return _rank(node)


def _padded(node: ir.Node) -> int | None:
    """A number before and one behind for each axis named in an input, or for all."""
    axes = node.inputs[3] if len(node.inputs) > 3 else None
    if axes is None:
        rank = _rank(node)
        return None if rank is None else 2 * rank
    if axes.shape is None or len(axes.shape) != 1:
        return None
    count = axes.shape[0]
    return 2 * count if isinstance(count, int) else None


def _outputs(node: ir.Node) -> int:
    return len(node.outputs)


def _starts(node: ir.Node) -> int | None:
    starts = node.inputs[1]
    shape = None if starts is None else starts.shape
    return _elements(shape) if shape is not None and shape.is_static() else None


_PER_AXIS = "one for each axis"
_PER_START = "as many as there are starts"


def _ones(*slots: int) -> tuple[tuple[int, Count, str], ...]:
    return tuple((slot, _one, "one") for slot in slots)


VECTORS = {"Col2Im": (1, 2), "Expand": (1,), "Reshape": (1,), "Slice": (1, 2, 3, 4), "Split": (1,)}
RULES: dict[str, tuple[tuple[int, Count, str], ...]] = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _ones(0)),
    **dict.fromkeys(("CumProd", "CumSum", "SequenceAt", "Trilu"), _ones(1)),
    **dict.fromkeys(("Clip", "DFT", "Dropout"), _ones(1, 2)),
    "CenterCropPad": ((1, _axes, _PER_AXIS),),
    "If": _ones(0),
    "Loop": _ones(0, 1),
    "MaxUnpool": ((2, _rank, _PER_AXIS),),
    "MelWeightMatrix": _ones(0, 1, 2, 3, 4),
    "NonMaxSuppression": _ones(2, 3, 4),
    "OneHot": _ones(1),
    "Pad": ((1, _padded, "two for each axis"),),
    "Range": _ones(0, 1, 2),
    "Resize": ((2, _axes, _PER_AXIS), (3, _axes, _PER_AXIS)),
    "STFT": _ones(1, 3),
    "SequenceErase": _ones(1),
    "SequenceInsert": _ones(2),
    "Slice": ((2, _starts, _PER_START), (3, _starts, _PER_START), (4, _starts, _PER_START)),
    "Split": ((1, _outputs, "one for each output"),),
    "Tile": ((1, _rank, _PER_AXIS),),
    "TopK": _ones(1),
}
