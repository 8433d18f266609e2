"""The kind of each value of a graph: a parameter, a constant, one that stays on the host."""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import onnx_ir as ir

from gradtool.graph.predicates import is_float, is_used
from gradtool.graph.specs import spec_of
from gradtool.graph.stages import stage
from gradtool.io.file_tensors import SMALL, FileTensor
from gradtool.ops.kernels import Kernel
from gradtool.program import Kind

MAX_SCALAR = 1
# A constant takes its bytes for the whole step. A known value that would take more of them than a
# scalar does, in buffers of whole lines, is computed when it is needed, or kept on the host.
KEPT_BYTES = 64


@dataclass(frozen=True)
class Kinds:
    """The facts that decide the kind of a value.

    `gradients` are names of outputs that hold some, `trained` names of values with a gradient or a
    next value; `changing` are values that are not the same in every step, initializers or not.
    """

    kernel_of: Callable[[ir.Node], Kernel | None]
    gradients: AbstractSet[str] = frozenset()
    trained: AbstractSet[str] = frozenset()
    changing: AbstractSet[ir.Value] = frozenset()
    _runs: dict[ir.Node, bool] = field(default_factory=dict)

    def look_through(self, graph: ir.Graph) -> None:
        """Find the nodes of a graph that run: their outputs are returned or read."""
        for node in reversed(graph):
            is_idle = self.is_folded(node) or not any(map(self.is_read, node.outputs))
            self._runs[node] = not is_idle

    def of_initializer(self, value: ir.Value) -> Kind:
        """A constant, a parameter, or state of an optimizer."""
        if self.is_constant(value):
            return self.of_constant(value)
        return "state" if self._is_state(value) else "parameter"

    def of_constant(self, value: ir.Value) -> Kind:
        """On the host if nobody needs it elsewhere."""
        if value.is_graph_output():
            return "constant"
        return "host" if all(self._is_on_host(*use) for use in self._uses(value)) else "constant"

    def of_result(self, value: ir.Value) -> Kind:
        """A gradient, another output, or an activation."""
        if value.name in self.gradients:
            return "gradient"
        return "output" if value.is_graph_output() else "activation"

    def is_known(self, value: ir.Value) -> bool:
        """Whether a value is the same in every step."""
        return value.const_value is not None and value not in self.changing

    def comes_later(self, value: ir.Value, *, is_main: bool) -> bool:
        """Whether data is absent, or large and in a file: then no program holds it."""
        tensor = value.const_value
        if getattr(tensor, "absent", False):
            return True
        is_large = isinstance(tensor, FileTensor) and tensor.nbytes > SMALL
        return is_large and is_main and not self.is_read_on_host(value)

    def stays_in_file(self, value: ir.Value) -> bool:
        """Whether kernels could read an initializer of the main graph where it lies in a file.

        They may where no step, nor whoever trains between steps, writes over it.
        """
        tensor = value.const_value
        return (
            isinstance(tensor, FileTensor)
            and tensor.is_mappable
            and value not in self.changing
            and value.name not in self.trained
            and not self.is_read_on_host(value)
            and not value.is_graph_output()
        )

    def is_read(self, value: ir.Value) -> bool:
        """Whether a graph returns a value, or a running node reads it."""
        return value.is_graph_output() or any(self._is_run(use.node) for use in value.uses())

    def is_folded(self, node: ir.Node) -> bool:
        """Whether all used results of a node are constants, so it never runs."""
        return all(self._is_kept(value) for value in node.outputs if is_used(value))

    def _is_kept(self, value: ir.Value) -> bool:
        """Whether a program holds a value as a constant."""
        if not self.is_known(value) or value.name in self.gradients:
            return False
        size = 0 if value.const_value is None else value.const_value.nbytes
        return size <= KEPT_BYTES or self.is_read_on_host(value)

    def is_read_on_host(self, value: ir.Value) -> bool:
        """Whether a node reads a value there, whatever reads it elsewhere."""
        return any(self._is_on_host(*use) for use in value.uses())

    def _uses(self, value: ir.Value) -> list[tuple[ir.Node, int]]:
        """The running readers of a value; in graphs not looked through, all not folded."""
        return [(use.node, use.idx) for use in value.uses() if self._is_run(use.node)]

    def _is_run(self, node: ir.Node) -> bool:
        runs = self._runs.get(node)
        return not self.is_folded(node) if runs is None else runs

    def is_constant(self, value: ir.Value) -> bool:
        """Whether a value is known and no parameter."""
        if not self.is_known(value) or not value.is_initializer():
            return self.is_known(value)
        spec = spec_of(value)
        small = spec is not None and math.prod(spec.shape) <= MAX_SCALAR
        host = self.of_constant(value) == "host"
        return value.name not in self.trained and (host or small or not is_float(value))

    def _is_state(self, value: ir.Value) -> bool:
        """Whether a value changes from step to step and serves nothing but updates."""
        return value in self.changing and all(stage(u.node) == "update" for u in value.uses())

    def _is_on_host(self, node: ir.Node, slot: int) -> bool:
        found = self.kernel_of(node)
        return found is not None and slot in found.host
