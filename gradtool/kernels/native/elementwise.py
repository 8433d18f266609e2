"""Elementwise operators by the library's loops: arithmetic, activations and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.kernels.native import Bound, are_floats, native, room
from gradtool.kernels.types import Array, Arrays, Specs
from gradtool.native import elementwise as library

# By operator: the step of the library, and the opset from which on the operator broadcasts.
UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Neg": "neg", "Abs": "abs",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Erf": "erf",
}  # fmt: skip
BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
SLOPES = {"ReluGrad": "relu_grad", "SigmoidGrad": "sigmoid_grad", "TanhGrad": "tanh_grad"}
BROADCASTS = 7


def _flat(a: Array) -> Array:
    """The elements in the order in which they lie: of an image that is channels last, too."""
    return a if a.flags.c_contiguous else a.transpose(0, 2, 3, 1)


def _shapes(specs: Specs) -> list[tuple[int, ...]]:
    return [spec.shape for spec in specs]


def _runs(*specs: Spec, out: Specs, **_: Any) -> bool:
    """Whether all are floats and lie in the result as the library broadcasts them."""
    if not are_floats(*specs, *out) or out[0] is None:
        return False
    try:
        for shape in _shapes(specs):
            library.pattern(shape, out[0].shape)
    except ValueError:
        return False
    return 0 not in out[0].shape


def _work(*specs: Spec, out: Specs, **_: Any) -> list[Spec]:
    code = [("add", len(specs), *range(len(specs)))]
    return room(library.work(code, _shapes(specs), out[0].shape))


def _bound(step: str, inputs: Arrays, out: Arrays, work: Arrays) -> Bound:
    """One step of the library on arrays that all lie alike."""
    code = [(step, len(inputs), *range(len(inputs)))]
    spare = work[0] if work else np.empty(0, np.float32)
    return library.run(code, [_flat(a) for a in inputs], [_flat(out[0])], spare)


def _register(op: str, step: str, since: int = 1) -> None:
    @native(op, fits=_runs, work=_work, since=since, layouts="alike")
    def bind(*inputs: Array, out: Arrays, work: Arrays) -> Bound:
        return _bound(step, inputs, out, work)


for _op, _step in UNARY.items():
    _register(_op, _step)
for _op, _step in BINARY.items():
    _register(_op, _step, BROADCASTS)
for _op, _step in SLOPES.items():
    _register(f"ai.gradtool::{_op}", _step)


@native("Gelu", fits=_runs, work=_work, layouts="alike")
def gelu(x: Array, *, out: Arrays, work: Arrays, approximate: str = "none") -> Bound:
    """`x Φ(x)`, or its approximation by tanh."""
    return _bound("gelu_tanh" if approximate == "tanh" else "gelu", [x], out, work)


@native("ai.gradtool::GeluGrad", fits=_runs, work=_work, layouts="alike")
def gelu_grad(
    x: Array, dy: Array, *, out: Arrays, work: Arrays, approximate: str = "none"
) -> Bound:
    """`dx` of `gelu`."""
    step = "gelu_tanh_grad" if approximate == "tanh" else "gelu_grad"
    return _bound(step, [x, dy], out, work)
