"""Gradients of arithmetic, comparison and logic, element by element."""

from __future__ import annotations

from collections.abc import Callable

from gradtool.emit.builder import Builder
from gradtool.errors import UnsupportedGradient
from gradtool.graph.composites import DOMAIN, composite
from gradtool.graph.metadata import aten
from gradtool.graph.typed import Node, Tensor, given
from gradtool.ops.formulas import FORMULAS
from gradtool.ops.gradients import Gradients, derivative, gradient, zero_gradient
from gradtool.ops.shared.tiling import by_piece

zero_gradient(
    "And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift",
    "IsNaN", "IsInf", "Sign", "Floor", "Ceil", "Round",
)  # fmt: skip

# What PyTorch's exporter writes as Clip, Max or Min; each has another gradient where inputs tie.
BENDS = ("hardtanh", "hardtanh_", "relu6", "relu6_")
CLAMPS = ("clamp", "clamp_", "clamp_max", "clamp_max_", "clamp_min", "clamp_min_", "clip", "clip_")


@gradient("Add", broadcasts=True)
def add(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a + b`:  da = dy,  db = dy."""
    return dy, dy


@gradient("Sub", broadcasts=True)
def sub(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a - b`:  da = dy,  db = -dy."""
    return dy, -dy


@gradient("Mul", broadcasts=True)
def mul(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a · b`:  da = dy · b,  db = dy · a."""
    a, b = node.inputs
    return dy * b, dy * a


@gradient("Div", broadcasts=True)
def div(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a / b`:  da = dy / b,  db = -da · y."""
    _, b = node.inputs
    da = dy / b
    return da, -(da * node.outputs[0])


@gradient("Neg")
def neg(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = -x`:  dx = -dy."""
    return -dy


@gradient("Exp")
def exp(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = exp x`:  dx = dy · y."""
    return dy * node.outputs[0]


@gradient("Log")
def log(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = log x`:  dx = dy / x."""
    return dy / node.inputs[0]


@gradient("Pow", broadcasts=True)
def power(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x^e`:  dx = dy · e · x^(e - 1),  de = dy · y · log x."""
    x, e = node.inputs
    dx = op.PowGrad(x, e, dy)
    if not e.dtype.is_floating_point():
        return dx, None
    return dx, op.cast(op.PowExponentGrad(x, e, node.outputs[0], dy), e.dtype)


@gradient("Mod", broadcasts=True)
def mod(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a - b · n` with n a whole number:  da = dy,  db = -dy · n."""
    a, b = node.inputs
    n = op.Round((a - node.outputs[0]) / b)
    return dy, -(dy * n)


@gradient("Sum", broadcasts=True)
def total(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x₁ + … + xₙ`:  dxᵢ = dy."""
    return (dy,) * len(node.inputs)


@gradient("Mean", broadcasts=True)
def mean(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = (x₁ + … + xₙ) / n`:  dxᵢ = dy / n."""
    count = len(node.inputs)
    return (dy / float(count),) * count


@gradient("Max", broadcasts=True)
def maximum(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = max(x₁, …, xₙ)`:  dxᵢ = dy / k for the k inputs that equal y, else 0."""
    return _clamped(op, node, dy, op.Less) or _extreme(op, node, dy, op.MaxGrad)


@gradient("Min", broadcasts=True)
def minimum(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = min(x₁, …, xₙ)`:  dxᵢ = dy / k for the k inputs that equal y, else 0."""
    return _clamped(op, node, dy, op.Greater) or _extreme(op, node, dy, op.MinGrad)


def _clamped(
    op: Builder, node: Node, dy: Tensor, beyond: Callable[[Tensor, Tensor], Tensor]
) -> Gradients:
    """The gradients of half a clamp, whose bound gets nothing where x is on it; None of others."""
    if aten(node) not in CLAMPS or len(node.inputs) != 2:
        return None
    out = beyond(*node.inputs)
    return op.Where(out, 0.0, dy), op.Where(out, dy, 0.0)


def _extreme(
    op: Builder, node: Node, dy: Tensor, pairwise: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Gradients:
    if len(node.inputs) == 1:
        return dy
    if len(node.inputs) == 2:
        a, b = node.inputs
        return pairwise(a, b, dy), pairwise(b, a, dy)
    y = node.outputs[0]
    hits = [op.Or(op.Equal(x, y), op.IsNaN(x)) for x in node.inputs]
    share = dy / op.Sum(*(op.cast(hit, dy.dtype) for hit in hits))
    return [op.Where(hit, share, 0.0) for hit in hits]


@gradient("Clip", broadcasts=True)
def clip(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = min(max(x, low), high)`: dy goes to x within the bounds, else to the bound it hit.

    Of a relu6 or hardtanh of PyTorch, x gets nothing on its bounds.
    """
    x, low, high = node.inputs[0], given(node, 1), given(node, 2)
    if low is None and high is None:
        return dy
    if aten(node) in BENDS and low is not None and high is not None:
        return op.Where(op.And(op.Greater(x, low), op.Less(x, high)), dy, 0.0), None, None
    dlow = dhigh = None
    if low is not None:
        hit = op.Less(x, low)
        hit = hit if high is None else op.And(hit, op.LessOrEqual(low, high))
        dlow = op.Where(hit, dy, 0.0)
    if high is not None:
        dhigh = op.Where(op.Greater(x if low is None else op.Max(x, low), high), dy, 0.0)
    return op.ClipGrad(x, low, high, dy), dlow, dhigh


@gradient("Where", broadcasts=True)
def where(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = a where c else b`:  da = dy where c,  db = dy where not c,  0 elsewhere."""
    condition = node.inputs[0]
    return None, op.Where(condition, dy, 0.0), op.Where(condition, 0.0, dy)


@gradient("Cast")
def cast(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x` in another type:  dx = dy in the type of x; none through integers."""
    return _converted(op, node, dy)


@gradient("CastLike")
def cast_like(op: Builder, node: Node, dy: Tensor) -> Gradients:
    """`y = x` in the type of another value:  dx = dy in the type of x."""
    return _converted(op, node, dy), None


def _converted(op: Builder, node: Node, dy: Tensor) -> Tensor | None:
    x, y = node.inputs[0], node.outputs[0]
    if not (x.dtype.is_floating_point() and y.dtype.is_floating_point()):
        from gradtool.ops.quantize.gradient import require_unrounded

        require_unrounded(op, x)
        return None
    if y.dtype.bitwidth < 16:
        raise UnsupportedGradient(node, "rounding to 8 bits or fewer has no derivative")
    return op.cast(dy, x.dtype)


@gradient("Identity")
def identity(op: Builder, node: Node, dy: Tensor) -> Tensor:
    """`y = x`:  dx = dy."""
    return dy


for _formula in FORMULAS.entries():
    if _formula.of is not None:
        _of = _formula.op.removesuffix("Grad")
        derivative(_of, of=_formula.of, in_pieces=_formula.in_pieces, **_formula.defaults)(
            _formula.formula
        )
    elif _formula.domain == DOMAIN:
        _body = by_piece(_formula.formula) if _formula.in_pieces else _formula.formula
        composite(_formula.op, like=_formula.over[0])(_body)
