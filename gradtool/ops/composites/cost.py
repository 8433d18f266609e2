"""The cost of composites that is counted off their bodies: what each node costs at these sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, composites
from gradtool.graph.constants import array
from gradtool.graph.specs import Spec, spec_of
from gradtool.io.opset import MINIMUM
from gradtool.ops.costs import COSTS, Cost, flops


@cache
def _counted(name: str, given: tuple[Spec | None, ...], options: tuple[Any, ...]) -> int | None:
    inputs = [None if spec is None else _value(f"x{i}", spec) for i, spec in enumerate(given)]
    there = [value for value in inputs if value is not None]
    graph = ir.Graph(there, [], nodes=[], opset_imports={"": MINIMUM, DOMAIN: 1})
    op = Builder(ir.Model(graph, ir_version=10))
    with op.arithmetic():
        composites()[name].body(op, *inputs, **dict(options))
    counts = [_cost(node) for node in graph]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _value(name: str, spec: Spec) -> ir.Value:
    kind = ir.TensorType(ir.DataType.from_numpy(spec.dtype))
    return ir.Value(name=name, shape=ir.Shape(spec.shape), type=kind)


def _cost(node: ir.Node) -> int | None:
    inputs = [None if v is None else _known(v) for v in node.inputs]
    outputs = [spec_of(v) for v in node.outputs]
    version = MINIMUM if not node.domain else 1
    return flops(node.domain, node.op_type, version, inputs, outputs, arguments(node))


def _known(value: ir.Value) -> Any:
    """The numbers of a constant of integers, such as axes; else shape and type."""
    integer = value.dtype is not None and value.dtype.is_integer()
    return array(value) if integer and value.const_value is not None else spec_of(value)


def _formula(name: str) -> Callable[..., int | None]:
    def formula(*inputs: Spec | None, out: Any, **options: Any) -> int | None:
        del out
        return _counted(name, inputs, tuple(sorted(options.items())))

    return formula


for _name, _entry in composites().items():
    if _entry.counted:
        COSTS.add(Cost(DOMAIN, _name, 1, _formula(_name)))
