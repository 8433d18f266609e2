"""The numbers shared by the updates of all parameters: inputs of a step, and their functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.typed import as_tensor
from gradtool.passes.update_settings import Setting

TERMS = 13  # of a series: the next is below the rounding of float64 where it is used
LEARNING_RATE = "lr"


class Numbers:
    """Scalar inputs by their names, and numbers computed from them, each once.

    Inputs are of `dtype`, the widest type of the parameters, at least float32; `setting` has their
    defaults.  Numbers come in the type of a parameter.
    """

    def __init__(
        self,
        op: Builder,
        setting: Setting,
        dtype: ir.DataType,
        inputs: dict[str, ir.Value] | None = None,
    ) -> None:
        self.op, self.setting, self.dtype = op, setting, dtype
        self.inputs: dict[str, ir.Value] = {} if inputs is None else inputs
        self.count: ir.Value | None = None
        self._made: dict[Hashable, ir.Value] = {}
        self.input(LEARNING_RATE)

    def counting(self, count: ir.Value) -> Numbers:
        """The numbers of parameters with another count of steps, and the same inputs."""
        made = Numbers(self.op, self.setting, self.dtype, self.inputs)
        made.count = count
        return made

    def input(self, name: str) -> Any:
        """The input of a setting, added to the graph when it is first asked for."""
        if name not in self.inputs:
            value = ir.Value(
                name=self.op.names.fresh(name), shape=ir.Shape(()), type=ir.TensorType(self.dtype)
            )
            self.op.graph.inputs.append(value)
            self.inputs[name] = value
        return self.inputs[name]

    @property
    def defaults(self) -> dict[str, float]:
        """The default of each input, by its name in the graph."""
        return {v.name or "": self.setting.inputs[what] for what, v in self.inputs.items()}

    def of(self, name: str, dtype: ir.DataType) -> ir.Value | None:
        """A setting; None where it is not there."""
        if name not in self.setting:
            return None
        return self.made(name, dtype, lambda: self.input(name))

    def share(self, beta: str, dtype: ir.DataType) -> ir.Value:
        """`1 - β`: of the default all digits, which β near 1 has not in float32."""
        return self.made(("share", beta), dtype, lambda: self._share(beta))

    def rate(self, dtype: ir.DataType, scale: float = 1.0) -> ir.Value:
        """The learning rate times a factor."""
        return self.made(("typed rate", scale), dtype, lambda: self._rate(scale))

    def corrected_rate(self, dtype: ir.DataType, scale: float) -> ir.Value:
        """`lr / (1 - β₁ᵗ)`, corrected for the bias of a mean that began at 0."""
        return self.made(
            ("corrected", scale), dtype, lambda: self._rate(scale) / self._correction("beta1")
        )

    def lazy_rate(self, dtype: ir.DataType, scale: float) -> ir.Value:
        """`lr · √(1 - β₂ᵗ) / (1 - β₁ᵗ)`, for ε added to the root of a mean that began at 0."""
        return self.made(
            ("lazy", scale), dtype,
            lambda: self._rate(scale) * self.op.Sqrt(self._correction("beta2"))
            / self._correction("beta1"),
        )  # fmt: skip

    def one(self, dtype: ir.DataType) -> ir.Value:
        """The number 1."""
        return self.made("one", dtype, lambda: self.op.constant(1.0, self.dtype))

    def correction(self, beta: str, dtype: ir.DataType) -> ir.Value:
        """`1 / (1 - βᵗ)`."""
        return self.made(("correction", beta), dtype, lambda: 1 / self._correction(beta))

    def root_correction(self, dtype: ir.DataType) -> ir.Value:
        """`√(1 - β₂ᵗ)`."""
        return self.made("root", dtype, lambda: self.op.Sqrt(self._correction("beta2")))

    def shrinkage(self, dtype: ir.DataType, scale: float) -> ir.Value:
        """`1 - lr · weight_decay`."""
        return self.made(
            ("shrinkage", scale), dtype, lambda: 1 - self._rate(scale) * self.input("weight_decay")
        )

    def steps(self) -> Any:
        """The number of this step, from 1 on, as a float."""
        return self.made("steps", self.dtype, lambda: self.count)

    def _rate(self, scale: float) -> Any:
        rate = self.input(LEARNING_RATE)
        if scale == 1:
            return rate
        return self.made(("rate", scale), self.dtype, lambda: rate * scale)

    def _share(self, beta: str) -> Any:
        default = self.setting.inputs[beta]
        held = float(self.dtype.numpy().type(default))
        return (1 - default) - (self.input(beta) - held)

    def _correction(self, beta: str) -> Any:
        """`1 - βᵗ`, as `1 - e⁻ˢ` with `s = -t · log β`: all its digits without float64.

        Near 0 the difference would lose them: there it is the series `s - s²/2! + s³/3! - …`.
        """
        return self.made(("1 - power", beta), self.dtype, lambda: self._complement(beta))

    def _complement(self, beta: str) -> Any:
        op, dtype = self.op, self.dtype
        s = self.steps() * self._logarithm(beta)
        powers = np.arange(1, TERMS + 1, dtype=dtype.numpy())
        signed = np.array([-((-1.0) ** k) / math.factorial(k) for k in range(1, TERMS + 1)])
        series = op.ReduceSum(op.Pow(s, powers) * signed.astype(dtype.numpy()), keepdims=0)
        return op.Where(op.Less(s, 0.5), series, 1 - op.Exp(-s))

    def _logarithm(self, beta: str) -> Any:
        """`-log(1 - share)`, with the digits of the share: `share · log u / (u - 1)`, u rounded.

        Source: Goldberg 1991, What every computer scientist should know about floating-point
        arithmetic, theorem 4.
        """
        share = self.share(beta, self.dtype)
        rounded = 1 - share
        is_one = self.op.Equal(rounded, self.op.constant(1.0, self.dtype))
        return self.op.Where(is_one, share, share * self.op.Log(rounded) / (rounded - 1))

    def made(self, what: Hashable, dtype: ir.DataType, make: Callable[[], Any]) -> ir.Value:
        """A number in a type, computed once for all readers."""
        if (what, dtype) not in self._made:
            with self.op.at(None, stage="update", source="", prefix="update"):
                self._made[what, dtype] = self.op.cast(as_tensor(make()), dtype)
        return self._made[what, dtype]
