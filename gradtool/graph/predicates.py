"""Facts about single values and operators, shared by several rooms."""

from __future__ import annotations

import onnx_ir as ir

# Operators that read the shape of their input, not its elements.
NO_DATA = frozenset({"Shape", "Size", "EyeLike"})

# Cached: each predicate of a type makes a set of all its like.
FLOATS = frozenset(kind for kind in ir.DataType if kind.is_floating_point())
HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
SIZES = (ir.DataType.INT32, ir.DataType.INT64)  # of shapes, axes and indices
INTEGERS = frozenset(kind for kind in ir.DataType if kind.is_integer())


def is_float(value: ir.Value) -> bool:
    """Whether a value has a floating-point type."""
    return value.dtype in FLOATS


def may_be_float(value: ir.Value) -> bool:
    """Whether a value has a floating-point type, or an unknown one."""
    return value.dtype is None or is_float(value)


def is_integer(value: ir.Value) -> bool:
    """Whether a value has a type of integers."""
    return value.dtype in INTEGERS


def is_tensor(value: ir.Value) -> bool:
    """Whether a value is known to be one tensor."""
    return isinstance(value.type, ir.TensorType)


def may_be_tensor(value: ir.Value) -> bool:
    """Whether a value is one tensor, or of unknown type."""
    return value.type is None or is_tensor(value)


def is_scalar(value: ir.Value) -> bool:
    """Whether a value is known to have one element."""
    return value.shape is not None and all(size == 1 for size in value.shape)


def is_used(value: ir.Value) -> bool:
    """Whether a node reads a value, or a graph returns it."""
    return bool(value.uses()) or value.is_graph_output()


def has_sizes(shape: ir.Shape | None, sizes: ir.Shape | None) -> bool:
    """Whether a shape has these very sizes, the open ones as the same objects."""
    if shape is None or sizes is None:
        return False
    pairs = zip(shape.dims, sizes.dims, strict=False)
    same = all(a is b or (isinstance(a, int) and a == b) for a, b in pairs)
    return same and len(shape) == len(sizes)


def made_by(op_type: str, value: ir.Value | None) -> ir.Node | None:
    """The producer of a value, if it is of this standard operator."""
    node = value.producer() if value is not None else None
    return node if node is not None and op_of(node) == op_type else None


def op_of(node: ir.Node) -> str:
    """The name of a standard operator, else nothing."""
    return node.op_type if node.domain in ("", "ai.onnx") else ""
