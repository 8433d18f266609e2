"""The last layers before an output: final activation or product, and the axis of classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph import walk
from gradtool.losses.pieces import Piecewise, piecewise

ACTIVATIONS = ("Softmax", "LogSoftmax", "Sigmoid")
PRODUCTS = ("Gemm", "MatMul", "Conv", "ConvTranspose")
LAYOUTS = ("Identity", "Cast", "CastLike", "Dropout", "Transpose", "Squeeze", "Unsqueeze",
           "Flatten", "Reshape")  # fmt: skip
AFFINE = ("Add", "Sub", "Mul", "Div", "BatchNormalization", "BatchNormalizationTraining")


@dataclass(frozen=True)
class Ending:
    """The last operator of a value that is neither a layout of it nor a scale and a shift.

    `node` is the activation or product, None for any other; `scores` is what a Softmax or
    LogSoftmax reads, else the value; `axis` is that of the classes in the value, and
    `scores_axis` in the scores, None where nothing says.  `single`: there is one number in each
    place, and no axis of classes but perhaps one of size 1.  `activation` is the final one, if
    there is one, of which `node` is the operator or the last piece.
    """

    node: ir.Node | None
    scores: ir.Value
    axis: int | None = None
    scores_axis: int | None = None
    single: bool = False
    activation: str = ""

    @property
    def linear(self) -> bool:
        """Whether the value comes straight from a product."""
        return self.node is not None and self.node.op_type in PRODUCTS


def ending(value: ir.Value) -> Ending:
    """Find what a value ends in. Types and shapes must have been inferred."""
    path, node = _last(value)
    if node is None:
        return Ending(None, value)
    axis: int | None
    whole = _activation(node)
    if whole is None:
        axis, single = _axis_of_product(node)
    else:
        axis, single = whole.axis, False
    before = axis
    for above in reversed(path):
        if axis is not None:
            axis, gone = _ABOVE.get(above.op_type, _same)(above, axis)
            single = single or gone
    single = single or (axis is not None and _size(value, axis) == 1)
    if whole is None:
        return Ending(node, value, axis, axis, single)
    if whole.kind == "Sigmoid":
        scores = node.outputs[0] if _normalized(path) else value
        return Ending(node, scores, single=single, activation=whole.kind)
    return Ending(node, whole.scores, axis, before, single, whole.kind)


def activations(model: ir.Model) -> dict[str, str]:
    """The final activation of each output that has one, by name."""
    found = {v.name or "": ending(v).activation for v in model.graph.outputs}
    return {name: kind for name, kind in found.items() if kind}


def _last(value: ir.Value) -> tuple[list[ir.Node], ir.Node | None]:
    """The way back to the last activation or product, and that."""
    path: list[ir.Node] = []
    above, node = value, value.producer()
    while node is not None:
        kind = node.op_type
        if above.index() and kind != "If":  # a statistic or a mask beside the result
            break
        if kind in PRODUCTS:
            return (path, None) if _normalized(path) else (path, node)
        if _activation(node) is not None:
            return (path, None) if any(n.op_type in AFFINE for n in path) else (path, node)
        before = _of_branches(node, value) if kind == "If" and not path else _before(node)
        if before is None:
            break
        path.append(node)
        above, node = before, before.producer()
    return path, None


def _of_branches(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The result of the first branch of an If, if all branches end in like products."""
    given = [graph.outputs[value.index() or 0] for graph in walk.subgraphs(node)]
    found = [ending(each) for each in given]
    alike = all(e.linear and (e.axis, e.single) == (found[0].axis, found[0].single) for e in found)
    return given[0] if given and alike else None


def _before(node: ir.Node) -> ir.Value | None:
    """The operand of a layout, scale or shift; the first term of a sum; None of any other."""
    from gradtool.graph.randomness import passed_through

    if (kept := passed_through(node)) is not None:
        return kept
    if node.op_type in LAYOUTS or _is_share(node) or node.op_type in AFFINE[4:]:
        return node.inputs[0]
    if node.op_type not in AFFINE:
        return None
    made = [v for v in node.inputs if v is not None and _is_made(v)]
    return made[0] if made and (len(made) == 1 or node.op_type == "Add") else None


def _is_made(value: ir.Value) -> bool:
    """Whether a node computes a value, perhaps from constants."""
    node = value.producer()
    return node is not None and node.op_type != "Constant"


def _is_share(node: ir.Node) -> bool:
    """Whether a node divides rows by their sum, as exporters do with probabilities."""
    if node.domain != "ai.onnx.ml" or node.op_type != "Normalizer":
        return False
    return node.attributes.get_string("norm", "MAX") == "L1"


def _normalized(path: list[ir.Node]) -> bool:
    return any(_is_share(node) for node in path)


# ----------------------------------------------------------------------------------- axes


def _axis_of_product(node: ir.Node) -> tuple[int | None, bool]:
    """The axis of features, and whether there is none since a vector is what is multiplied by."""
    if node.op_type != "MatMul":
        return 1, False
    right, rank = node.inputs[1], len(node.outputs[0].shape or ())
    if right is not None and len(right.shape or ()) == 1:
        return None, True
    return (rank - 1 if rank else None), False


def _activation(node: ir.Node) -> Piecewise | None:
    """The activation that a node is, or the last piece of; None if it is neither."""
    if node.op_type not in ACTIVATIONS:
        return piecewise(node.outputs[0])
    rank = len(node.outputs[0].shape or ())
    assert node.inputs[0] is not None  # noqa: S101 - they read something
    over = node.op_type != "Sigmoid" and rank
    axis = node.attributes.get_int("axis", -1) % rank if over else None
    return Piecewise(node.op_type, node.inputs[0], axis)


Place = tuple[int | None, bool]


def _same(_node: ir.Node, axis: int) -> Place:
    return axis, False


def _of_sum(node: ir.Node, axis: int) -> Place:
    """Shapes are aligned on the right."""
    before = _before(node)
    assert before is not None  # noqa: S101 - it is on the way back
    return axis + len(node.outputs[0].shape or ()) - len(before.shape or ()), False


def _of_transpose(node: ir.Node, axis: int) -> Place:
    rank = len(node.outputs[0].shape or ())
    perm = node.attributes.get_ints("perm", list(reversed(range(rank))))
    return list(perm).index(axis), False


def _of_squeeze(node: ir.Node, axis: int) -> Place:
    assert node.inputs[0] is not None  # noqa: S101 - it reads something
    sizes = list(node.inputs[0].shape or ())
    given = _constant(node, 1)
    axes = [i for i, d in enumerate(sizes) if d == 1] if given is None else given
    axes = [a % len(sizes) for a in axes]
    return (None, True) if axis in axes else (axis - sum(a < axis for a in axes), False)


def _of_unsqueeze(node: ir.Node, axis: int) -> Place:
    rank = len(node.outputs[0].shape or ())
    axes = [a % rank for a in _constant(node, 1) or ()]
    return [i for i in range(rank) if i not in axes][axis], False


def _of_reshape(node: ir.Node, axis: int) -> Place:
    """The axis of this size with the same sizes before it, or as many elements behind it."""
    assert node.inputs[0] is not None  # noqa: S101 - it reads something
    old, new = list(node.inputs[0].shape or ()), list(node.outputs[0].shape or ())
    if old[axis] == 1:
        return None, True
    for place, size in enumerate(new):
        if size == old[axis] and (
            new[:place] == old[:axis] or _count(new[place + 1 :]) == _count(old[axis + 1 :])
        ):
            return place, False
    return None, False


_ABOVE: Mapping[str, Callable[[ir.Node, int], Place]] = {
    **dict.fromkeys(AFFINE[:4], _of_sum),
    "Transpose": _of_transpose,
    "Squeeze": _of_squeeze,
    "Unsqueeze": _of_unsqueeze,
    "Flatten": _of_reshape,
    "Reshape": _of_reshape,
}


def _constant(node: ir.Node, slot: int) -> list[int] | None:
    value = node.inputs[slot] if len(node.inputs) > slot else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    return None if tensor is None else [int(i) for i in tensor.numpy().reshape(-1)]


def _count(sizes: list[Any]) -> int | None:
    """How many elements there are, if all sizes are known."""
    known = [size for size in sizes if isinstance(size, int)]
    return int(np.prod(known, dtype=np.int64)) if len(known) == len(sizes) else -1


def _size(value: ir.Value, axis: int) -> Any:
    """The size of an axis; None of a value without a known shape."""
    return None if value.shape is None else value.shape[axis]
