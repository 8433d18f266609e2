"""The dynamic region: values whose shape depends on data, allocated as they appear, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.exec.device import Device
from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec
from gradtool.ops.kernels import Kernel
from gradtool.ops.shared import runtime_limits as allowance
from gradtool.ops.shared.call import results, spec_of
from gradtool.program import Program, Step
from gradtool.shapes.limits import ImpossibleShape


class DynamicRegion:
    """Arrays outside the arena, each held from its definition to its last use.

    `bytes` are held now, `peak` were held at most; both count only values that no plan can size.
    """

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.device = device
        self.values: dict[int, Any] = {}
        self.bytes = 0
        self.peak = 0
        self._last = _last_uses(program)

    def run(self, index: int, kernel: Kernel, arrays: Sequence[Any]) -> None:
        """Run one step with at least one value of unknown shape."""
        step = self.program.steps[index]
        inputs = [None if v is None else self.values.get(v, arrays[v]) for v in step.inputs]
        inputs = [
            self.device.to_host(a) if a is not None and slot in kernel.host else a
            for slot, a in enumerate(inputs)
        ]
        out = () if kernel.chooses else self._out(step, kernel, inputs)
        on_host = not self.device.computes([*inputs, *out])
        if on_host:
            inputs = [None if a is None else self.device.to_host(a) for a in inputs]
        made = self._results(np if on_host else self.device.xp, step, kernel, inputs, out)
        for value, result in zip(step.outputs, made, strict=False):
            if value is None:
                continue
            if self.program.values[value].spec is None:
                self.hold(value, self.device.of_host(result))
            elif isinstance(result, np.ndarray):
                self.device.from_host(arrays[value], result)
            else:
                self.device.xp.copyto(arrays[value], result)
        for value in self._last.get(index, ()):
            held = self.values.pop(value, None)
            if held is not None:
                self._count(-_bytes(held))

    def hold(self, value: int, array: Any) -> None:
        """Keep an array, or whatever the value is, until its last reader has run."""
        self._count(_bytes(array) - _bytes(self.values.get(value)))
        self.values[value] = array
        self.peak = max(self.peak, self.bytes)

    def _count(self, more: int) -> None:
        allowance.current().take(more)
        self.bytes += more

    def _results(
        self, xp: Any, step: Step, kernel: Kernel, inputs: Sequence[Any], out: Sequence[Spec | None]
    ) -> Sequence[Any]:
        """Outputs of a kernel."""
        if kernel.chooses:
            allowance.current().require(_least_bytes(step, kernel, inputs))
            return results(xp, kernel, inputs, (), step.attributes)
        allowance.current().require(sum(spec.bytes for spec in out if spec is not None))
        return results(xp, kernel, inputs, out, step.attributes)

    def _out(self, step: Step, kernel: Kernel, inputs: Sequence[Any]) -> list[Spec | None]:
        """Specs of the outputs: as planned, or as inferred from the arrays at hand."""
        known = [None if v is None else self.program.values[v].spec for v in step.outputs]
        if all(s is not None or v is None for s, v in zip(known, step.outputs, strict=True)):
            return known
        return [
            None if v is None else s
            for v, s in zip(step.outputs, _infer(step, kernel, inputs), strict=True)
        ]


def _least_bytes(step: Step, kernel: Kernel, inputs: Sequence[Any]) -> int:
    """Bytes of a kernel's outputs, as far as inference tells for these very inputs.

    Raises:
        ImpossibleShape: no array can have the shape of a result.
    """
    programs = any(isinstance(value, Program) for value in step.attributes.values())
    if programs or any(isinstance(array, (list, tuple)) for array in inputs):
        return 0
    try:
        return sum(spec.bytes for spec in _infer(step, kernel, inputs))
    except ImpossibleShape:
        raise
    except ModelError:  # only a call tells
        return 0


def _bytes(held: Any) -> int:
    """Bytes of an array or of the arrays of a sequence."""
    if isinstance(held, (list, tuple)):
        return sum(_bytes(item) for item in held)
    return int(getattr(held, "nbytes", 0))


def _infer(step: Step, kernel: Kernel, inputs: Sequence[Any]) -> list[Spec]:
    """Shapes and types of the outputs for these very inputs.

    Sizes that depend on the data itself are left at 0: a simple kernel returns them.
    """
    from onnx_shape_inference import ShapeInferenceContext, registry

    from gradtool.graph.attributes import attribute

    domain, op = split_name(step.op)
    values = [None if a is None else _constant(a) for a in inputs]
    attributes = [attribute(k, v) for k, v in step.attributes.items()]
    node = ir.Node(domain, op, values, attributes, num_outputs=len(step.outputs), name=step.name)
    infer = registry.get(domain, op, version=step.version)
    if infer is None:
        raise ModelError(f"{step.op} {step.name!r}: its shape can't be inferred")
    infer(ShapeInferenceContext({domain: step.version}, policy="override"), node)
    specs = []
    for value in node.outputs:
        if value.dtype is None or value.shape is None:
            raise ModelError(f"{step.op} {step.name!r}: its shape can't be inferred")
        if not kernel.allocating and not all(isinstance(d, int) for d in value.shape):
            raise ModelError(f"{step.op} {step.name!r}: its kernel can't choose an output's size")
        shape = tuple(d if isinstance(d, int) else 0 for d in value.shape)
        specs.append(Spec(shape, np.dtype(value.dtype.numpy())))
    return specs


def _constant(array: Any) -> ir.Value:
    spec = spec_of(array)
    tensor = ir.Tensor(array) if isinstance(array, np.ndarray) else None
    dtype = ir.DataType.from_numpy(spec.dtype)
    return ir.Value(
        name="x", shape=ir.Shape(spec.shape), type=ir.TensorType(dtype), const_value=tensor
    )


def _last_uses(program: Program) -> dict[int, list[int]]:
    """By step: the values of unknown shape that nobody reads after it."""
    open_ = {value for value, datum in enumerate(program.values) if datum.spec is None}
    last: dict[int, int] = {}
    for index, step in enumerate(program.steps if open_ else ()):
        for value in (*step.reads, *step.writes):
            if value in open_:
                last[value] = index
    for value in (*program.inputs, *program.outputs):
        last.pop(value, None)
    found: dict[int, list[int]] = {}
    for value, index in last.items():
        found.setdefault(index, []).append(value)
    return found
