"""The updates of one parameter, by optimizer: which formula reads which numbers and which state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx_ir as ir

from gradtool.graph.optimizers import SPARSE_PREFIX
from gradtool.passes.sparse import Rows
from gradtool.passes.update_numbers import Numbers
from gradtool.passes.update_settings import Setting

Sizes = tuple[int, ...]


class Extent(NamedTuple):
    """The sizes of a parameter, and whether it is a `matrix` for optimizers of matrices.

    A matrix has two axes, and is no table of embeddings.
    """

    sizes: Sizes
    matrix: bool


@dataclass(frozen=True)
class Target:
    """A parameter to update, by the rate `scale · lr`, with weight decay if it `decays`."""

    x: ir.Value
    scale: float = 1.0
    decays: bool = True
    matrix: bool = False

    @property
    def dtype(self) -> ir.DataType:
        assert self.x.dtype is not None  # noqa: S101 - a parameter has a type
        return self.x.dtype

    @property
    def extent(self) -> Extent:
        assert self.x.shape is not None  # noqa: S101 - a parameter has a shape
        return Extent(tuple(self.x.shape.numpy()), self.matrix)

    @property
    def sizes(self) -> Sizes:
        return self.extent.sizes


Rule = Callable[[Numbers, Target, Any, Sequence[Any]], Sequence[Any]]
States = Callable[[Setting, Extent], Mapping[str, Sizes]]


def _update(
    n: Numbers, name: str, x: ir.Value, g: Any, *rest: Any, outputs: int = 1, **options: Any
) -> Any:
    """Emit the formula of a name, or its form for the rows with a gradient."""
    if isinstance(g, Rows):
        inputs = (x, g.rows, g.slots, g.sums, *rest)
        return n.op.emit(f"{SPARSE_PREFIX}{name}", inputs, outputs, options)
    return n.op.emit(name, (x, g, *rest), outputs, options)


def _decay(n: Numbers, target: Target) -> ir.Value | None:
    """The factor of a penalty, if there is one."""
    return n.of("weight_decay", target.dtype) if target.decays else None


def _shrinkage(n: Numbers, target: Target) -> ir.Value | None:
    """The factor of decoupled weight decay, if there is one."""
    if not target.decays or "weight_decay" not in n.setting:
        return None
    return n.shrinkage(target.dtype, target.scale)


def _rate(n: Numbers, target: Target) -> ir.Value:
    return n.rate(target.dtype, target.scale)


def sgd(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """Steepest descent, or with momentum (the step counts only with dampening)."""
    dtype = target.dtype
    rate, decay = _rate(n, target), _decay(n, target)
    if not state:
        return [_update(n, "SgdUpdate", target.x, g, rate, decay, None)]
    share = None
    if "dampening" in n.setting:
        share = n.made("dampened", dtype, lambda: _dampened(n))
    return n.op.MomentumUpdate(  # type: ignore[return-value]
        target.x, g, rate, decay, n.of("momentum", dtype), share, *state,
        nesterov=int(n.setting["nesterov"]), outputs=2,
    )  # fmt: skip


def _dampened(n: Numbers) -> Any:
    """`1 - dampening`, and 1 in the first step."""
    first = n.op.Less(n.steps(), 1.5)
    return n.op.Where(first, n.op.constant(1.0, n.dtype), 1 - n.input("dampening"))


def adam(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """With a penalty among the gradients."""
    return _adam(n, target, g, state, decay=_decay(n, target))


def adamw(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """Adam with decoupled weight decay."""
    return _adam(n, target, g, state, shrinkage=_shrinkage(n, target))


def _adam(
    n: Numbers, target: Target, g: Any, state: Sequence[Any], decay: Any = None,
    shrinkage: Any = None, epsilon: str = "epsilon",
) -> Sequence[Any]:  # fmt: skip
    dtype = target.dtype
    return n.op.AdamUpdate(  # type: ignore[return-value]
        target.x, g, n.corrected_rate(dtype, target.scale), n.root_correction(dtype),
        n.share("beta1", dtype), n.share("beta2", dtype), decay, shrinkage, *state,
        epsilon=n.setting[epsilon], outputs=3,
    )  # fmt: skip


def lazy_adam(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """The means of rows with a gradient alone, as torch.optim.SparseAdam has it."""
    dtype = target.dtype
    made: Sequence[Any] = _update(
        n, "AdamUpdate", target.x, g, n.lazy_rate(dtype, target.scale), n.one(dtype),
        n.share("beta1", dtype), n.share("beta2", dtype), None, None, *state,
        epsilon=n.setting["epsilon"], outputs=3,
    )  # fmt: skip
    return made


def adagrad(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """By the root of the sum of squares."""
    made: Sequence[Any] = _update(
        n, "AdagradUpdate", target.x, g, _rate(n, target), _decay(n, target), *state,
        epsilon=n.setting["epsilon"], outputs=2,
    )  # fmt: skip
    return made


def rmsprop(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """By the root of the mean of squares."""
    dtype = target.dtype
    return n.op.RmspropUpdate(  # type: ignore[return-value]
        target.x, g, _rate(n, target), n.share("alpha", dtype), _decay(n, target),
        n.of("momentum", dtype), *state, epsilon=n.setting["epsilon"],
        centered=int(n.setting["centered"]), outputs=1 + len(state),
    )  # fmt: skip


def lion(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """By the sign of a mean."""
    dtype = target.dtype
    return n.op.LionUpdate(  # type: ignore[return-value]
        target.x, g, _rate(n, target), n.share("beta1", dtype), n.share("beta2", dtype),
        _shrinkage(n, target), *state, outputs=2,
    )  # fmt: skip


def lamb(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """Adam's direction as long as the parameter is: `lr · ‖x‖ / ‖u‖ · u`; `lr · u` if one is 0."""
    op, dtype, x = n.op, target.dtype, target.x
    u, m, v = op.LambDirection(
        x, g, n.correction("beta1", dtype), n.root_correction(dtype), n.share("beta1", dtype),
        n.share("beta2", dtype), _decay(n, target), *state,
        epsilon=n.setting["epsilon"], outputs=3,
    )  # fmt: skip
    length, step = (op.ReduceL2(value, keepdims=0) for value in (x, u))
    both = op.And(op.Greater(length, 0.0), op.Greater(step, 0.0))
    trust = op.Where(both, length / step, op.constant(1.0, dtype))
    return op.SgdUpdate(x, u, _rate(n, target) * trust, None, None), m, v


def adafactor(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """By the root of a factored mean of squares, by steps relative to the parameter.

    Source: Shazeer and Stern 2018 (arXiv:1804.04235), algorithms 4 and 5, as torch.optim.Adafactor.
    """
    op, dtype, x, given = n.op, target.dtype, target.x, n.setting
    epsilon = given["epsilon1"] or _machine_epsilon(dtype)
    share = n.made("beta2 share", dtype, lambda: op.Pow(n.steps(), n.input("beta2_decay")))
    if len(state) == 1:
        u, *changed = op.VarianceDirection(g, share, *state, epsilon=epsilon, outputs=2)
    else:
        rows, columns = (
            old + (op.ReduceSumSquare(g, [axis], keepdims=1) / target.sizes[axis] - old) * share
            for old, axis in zip(state, (-1, -2), strict=True)
        )
        scaled = rows / op.Max(op.ReduceMean(rows, [-2], keepdims=1), epsilon)
        u, changed = op.FactoredDirection(g, scaled, columns, epsilon=epsilon), [rows, columns]
    root = math.sqrt(max(math.prod(target.sizes), 1))
    steps = n.made(
        ("relative", target.scale), dtype,
        lambda: op.Min(n.rate(n.dtype, target.scale), 1 / op.Sqrt(n.steps())),
    )  # fmt: skip
    length = op.Max(op.ReduceL2(x, keepdims=0) / root, given["epsilon2"]) * steps
    rate = length / op.Max(op.ReduceL2(u, keepdims=0) / (root * given["clip_threshold"]), 1.0)
    return op.SgdUpdate(x, u, rate, None, _shrinkage(n, target)), *changed


def _machine_epsilon(dtype: ir.DataType) -> float:
    """The distance of 1 to the next larger number."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype.numpy()).eps)


def muon(n: Numbers, target: Target, g: Any, state: Sequence[Any]) -> Sequence[Any]:
    """The nearest orthogonal matrix to the momentum, in the parameter's own precision.

    Parameters other than matrices are updated by AdamW. Source: Jordan and others 2024
    (kellerjordan.github.io/posts/muon), as torch.optim.Muon has it; both of these iterate in
    bfloat16.
    """
    if not target.matrix:
        shrinkage = _shrinkage(n, target)
        return _adam(n, target, g, state, shrinkage=shrinkage, epsilon="adam_epsilon")
    op, dtype, given = n.op, target.dtype, n.setting
    u, b = op.MuonDirection(
        g, n.share("momentum", dtype), n.of("momentum", dtype), *state,
        nesterov=int(given["nesterov"]), outputs=2,
    )  # fmt: skip
    rows, columns = target.sizes
    tall = rows > columns
    o = op.swap_axes(u, 0, 1) if tall else u
    o = o / op.Max(op.ReduceL2(o, keepdims=0), given["epsilon"])
    for _ in range(int(given["ns_steps"])):
        gram = op.Gemm(o, o, transB=1)
        change = op.Gemm(gram, gram, gram, alpha=given["ns_c"], beta=given["ns_b"])
        o = op.Gemm(change, o, o, alpha=1.0, beta=given["ns_a"])
    o = op.swap_axes(o, 0, 1) if tall else o
    rate = n.rate(dtype, target.scale * ADJUST[given["adjust"]](max(rows, 1), max(columns, 1)))
    return op.SgdUpdate(target.x, o, rate, None, _shrinkage(n, target)), b


# Of the learning rate, by the sizes of a matrix.
ADJUST: Mapping[str, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}


def same(*names: str) -> States:
    """State of the parameter's shape."""
    return lambda _, extent: dict.fromkeys(names, extent.sizes)


def none(_: Setting, __: Extent) -> Mapping[str, Sizes]:
    """No state."""
    return {}


def of_sgd(setting: Setting, extent: Extent) -> Mapping[str, Sizes]:
    """The momentum, if there is one."""
    return {"momentum": extent.sizes} if "momentum" in setting else {}


def of_rmsprop(setting: Setting, extent: Extent) -> Mapping[str, Sizes]:
    """The mean of squares, centred that of the gradient, and the momentum if there is one."""
    mean = ["grad_avg"] if setting["centered"] else []
    names = ["square_avg", *mean, *(["momentum"] if "momentum" in setting else [])]
    return dict.fromkeys(names, extent.sizes)


def of_adafactor(_: Setting, extent: Extent) -> Mapping[str, Sizes]:
    """Of the last two axes the means along each, or of a vector the mean."""
    sizes = extent.sizes
    if len(sizes) < 2:
        return {"variance": sizes}
    return {"row_var": (*sizes[:-1], 1), "col_var": (*sizes[:-2], 1, sizes[-1])}


def of_muon(_: Setting, extent: Extent) -> Mapping[str, Sizes]:
    """The momentum of a matrix, the means of AdamW of other parameters."""
    names = ("momentum",) if extent.matrix else ("exp_avg", "exp_avg_sq")
    return dict.fromkeys(names, extent.sizes)
