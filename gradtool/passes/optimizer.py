"""The updates of an optimizer, behind the gradients of a training graph: a whole step in one file.

Parameters and the optimizer's state go in as initializers, their next values come out.  Gradients
are no outputs then, so that each is free as soon as its update has run.

Source: torch.optim (PyTorch 2), whose formulas and default hyperparameters these are; unlike there,
the learning rate is an input, and the state is there from the start, as zeros.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.known import as_tensor
from gradtool.graph.metadata import DEFAULTS, OPTIMIZER, STATE
from gradtool.io.zeros import Zeros
from gradtool.passes.update_formulas import decayed, descended, means, velocity
from gradtool.text.words import some

TERMS = 13  # of a series: the next is below the rounding of float64 where it is used

Update = Callable[["Step", Any, Any, Sequence[Any]], tuple[Any, Sequence[Any]]]


@dataclass(frozen=True)
class Optimizer:
    """A way to update parameters.

    `rate` is the default of the input `lr`.  `update` maps a parameter, its gradient and its
    `state` (tensors of its shape, by the suffix of their names) to their next values.  With
    `counts`, steps are counted.
    """

    update: Update
    rate: float
    state: tuple[str, ...] = ()
    counts: bool = False
    hyperparameters: Mapping[str, float] | None = None


class Step:
    """What the updates of all parameters share: the learning rate, and corrections of means.

    `lr` is a scalar input of the widest type of the parameters, at least float32.
    """

    def __init__(self, op: Builder, optimizer: Optimizer, dtype: ir.DataType) -> None:
        self.op = op
        self.given = dict(optimizer.hyperparameters or {})
        name = op.names.fresh("lr")
        self.lr = ir.Value(name=name, shape=ir.Shape(()), type=ir.TensorType(dtype))
        op.graph.inputs.append(self.lr)
        self.count: ir.Value | None = None
        self._scalars: dict[tuple[str, ir.DataType], ir.Value] = {}

    def rate(self, dtype: ir.DataType) -> ir.Value:
        """The learning rate in the type of a parameter."""
        return self._cached("rate", dtype, lambda: self.lr)

    def corrected_rate(self, dtype: ir.DataType) -> ir.Value:
        """`lr / (1 - β₁ᵗ)`, which makes up for a mean that began at 0."""
        return self._cached("corrected", dtype, lambda: self.lr / self._correction("beta1"))

    def root_correction(self, dtype: ir.DataType) -> ir.Value:
        """`√(1 - β₂ᵗ)`."""
        return self._cached("root", dtype, lambda: self.op.Sqrt(self._correction("beta2")))

    def shrinkage(self, dtype: ir.DataType) -> ir.Value:
        """`1 - lr · weight_decay`."""
        return self._cached("shrinkage", dtype, lambda: 1 - self.lr * self.given["weight_decay"])

    def _correction(self, beta: str) -> Any:
        """`1 - βᵗ`, which is `1 - e⁻ˢ` with `s = -t · log β`: all its digits without float64.

        Near 0 the difference would lose them: there it is the series `s - s²/2! + s³/3! - …`.
        """
        op, dtype = self.op, self.lr.dtype
        assert dtype is not None  # noqa: S101 - it is set
        s = op.cast(as_tensor(self.count), dtype) * -math.log(self.given[beta])
        powers = np.arange(1, TERMS + 1, dtype=dtype.numpy())
        signed = np.array([-((-1.0) ** k) / math.factorial(k) for k in range(1, TERMS + 1)])
        series = op.ReduceSum(op.Pow(s, powers) * signed.astype(dtype.numpy()), keepdims=0)
        return op.Where(op.Less(s, 0.5), series, 1 - op.Exp(-s))

    def _cached(self, what: str, dtype: ir.DataType, make: Callable[[], Any]) -> ir.Value:
        if (what, dtype) not in self._scalars:
            self._scalars[what, dtype] = self.op.cast(make(), dtype)
        return self._scalars[what, dtype]


def _sgd(step: Step, x: Any, g: Any, _: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """`x - lr · g`."""
    return x - g * step.rate(x.dtype), ()


def _momentum(step: Step, x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """`b = momentum · b + g`, `x - lr · b`: SGD without dampening."""
    new = velocity(state[0], g, step.given["momentum"])
    return x - new * step.rate(x.dtype), (new,)


def _adam(step: Step, x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """`x - lr / (1 - β₁ᵗ) · m / (√v / √(1 - β₂ᵗ) + ε)`.

    Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1.
    """
    first, second = means((state[0], state[1]), g, (step.given["beta1"], step.given["beta2"]))
    root = step.op.Sqrt(second) / step.root_correction(x.dtype)
    rate = step.corrected_rate(x.dtype)
    return descended(x, rate, first, root, step.given["epsilon"]), (first, second)


def _adamw(step: Step, x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Adam of `(1 - lr · weight_decay) · x`."""
    return _adam(step, decayed(x, step.shrinkage(x.dtype)), g, state)


def _adagrad(step: Step, x: Any, g: Any, state: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """`s = s + g²`, `x - lr · g / (√s + ε)`.

    Source: Duchi, Hazan and Singer 2011 (JMLR 12), figure 1, its diagonal form.
    """
    new = state[0] + g * g
    moved = descended(x, step.rate(x.dtype), g, step.op.Sqrt(new), step.given["epsilon"])
    return moved, (new,)


_ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
_MEANS = ("exp_avg", "exp_avg_sq")
OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": Optimizer(_sgd, 1e-3),
    "momentum": Optimizer(_momentum, 1e-3, ("momentum",), hyperparameters={"momentum": 0.9}),
    "adam": Optimizer(_adam, 1e-3, _MEANS, counts=True, hyperparameters=_ADAM),
    "adamw": Optimizer(
        _adamw, 1e-3, _MEANS, counts=True, hyperparameters=_ADAM | {"weight_decay": 1e-2}
    ),
    "adagrad": Optimizer(_adagrad, 1e-2, ("sum",), hyperparameters={"epsilon": 1e-10}),
}


def add_updates(op: Builder, name: str, gradients: Mapping[ir.Value, ir.Value]) -> dict[str, str]:
    """Append the update of each parameter; returns the outputs with next values, by initializer.

    `gradients` maps initializers of known shape to their gradients.  The new inputs, and what they
    are where nobody gives them, are noted in the metadata.

    Raises:
        UsageError: there is nothing to update, or a shape is open.
    """
    optimizer = OPTIMIZERS.get(name)
    if optimizer is None:
        raise UsageError(f"no optimizer {name!r}; there are none, {', '.join(OPTIMIZERS)}")
    _require(op.model, name, gradients)
    state: dict[str, str] = {}
    wide = any(v.dtype == ir.DataType.DOUBLE for v in gradients)
    with op.at(None, stage="update", source="", prefix="update"), op.arithmetic():
        step = Step(op, optimizer, ir.DataType.DOUBLE if wide else ir.DataType.FLOAT)
        if optimizer.counts:
            before = _zeros(op, "step", ir.DataType.INT64, ())
            step.count = before + op.constant(1, ir.DataType.INT64)
            _publish(op, before, step.count, state)
        for value, gradient in gradients.items():
            _update(step, optimizer, value, gradient, state)
    told = {"name": name, "lr": step.lr.name, **step.given}
    op.model.metadata_props[OPTIMIZER] = json.dumps(told)
    op.model.metadata_props[DEFAULTS] = json.dumps({step.lr.name: optimizer.rate})
    return state


def _update(
    step: Step, optimizer: Optimizer, x: ir.Value, gradient: ir.Value, state: dict[str, str]
) -> None:
    op = step.op
    assert x.dtype is not None and x.shape is not None  # noqa: PT018, S101 - a parameter has both
    with op.at(None, stage="update", source="", prefix=f"{x.name}/update"):
        sizes = tuple(x.shape.numpy())
        held = [_zeros(op, f"{x.name}_{what}", x.dtype, sizes) for what in optimizer.state]
        moved, changed = optimizer.update(step, x, gradient, held)
        for old, new in zip((x, *held), (moved, *changed), strict=True):
            _publish(op, old, new, state)


def _require(model: ir.Model, name: str, gradients: Mapping[ir.Value, ir.Value]) -> None:
    if not gradients:
        raise UsageError(f"--optimizer {name}: no parameter among the values to differentiate by")
    known = json.loads(model.metadata_props.get(STATE, "{}"))
    updated = [v.name or "" for v in gradients if v.name in known]
    if updated:
        raise UsageError(f"--optimizer {name}: the model already updates {some(updated)}")
    open_ = [v.name or "" for v in gradients if v.shape is None or not v.shape.is_static()]
    if open_:
        raise UsageError(f"--optimizer {name}: the shape of {some(open_)} is open")


def _zeros(op: Builder, name: str, dtype: ir.DataType, sizes: tuple[int, ...]) -> ir.Value:
    """A new initializer of zeros."""
    tensor = Zeros(dtype, sizes, op.names.fresh(name))
    made = ir.Value(
        name=tensor.name, shape=ir.Shape(sizes), type=ir.TensorType(dtype), const_value=tensor
    )
    op.root.register_initializer(made)
    op.folding.never([made])
    return made


def _publish(op: Builder, old: ir.Value, new: ir.Value, state: dict[str, str]) -> None:
    """Return a next value as `<name>_next`."""
    new.name = op.names.fresh(f"{old.name}_next")
    op.graph.outputs.append(new)
    state[old.name or ""] = new.name
