"""Costs of composites without a formula: sums over the nodes of their bodies at these sizes."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments
from gradtool.graph.composites import DOMAIN, find, named
from gradtool.graph.constants import array
from gradtool.graph.specs import Spec, spec_of
from gradtool.io.opset import MINIMUM
from gradtool.ops import traits
from gradtool.ops.composites.dead_outputs import needed
from gradtool.ops.costs import Cost, flops
from gradtool.ops.shared.element_counts import Results

Given = Spec | tuple[Spec, bytes] | None


@cache
def _counted(
    name: str, given: tuple[Given, ...], wanted: tuple[bool, ...], options: tuple[Any, ...]
) -> int | None:
    inputs = [None if each is None else _value(f"x{i}", each) for i, each in enumerate(given)]
    graph = ir.Graph([], [], nodes=[], opset_imports={"": MINIMUM, DOMAIN: 1})
    op = Builder(ir.Model(graph, ir_version=10))
    with op.arithmetic():
        made = named(name).body(op, *inputs, **dict(options))
    results = [made] if isinstance(made, ir.Value) else made
    read = [value for value, is_wanted in zip(results, wanted, strict=False) if is_wanted]
    counts = [_cost(node) for node in needed(list(graph), read)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _key(given: Any) -> Given:
    """Shape and type of an input, and the numbers of one that the host knows."""
    if given is None or isinstance(given, Spec):
        return given
    return Spec(given.shape, given.dtype), given.tobytes()


def _value(name: str, given: Spec | tuple[Spec, bytes]) -> ir.Value:
    spec, numbers = given if isinstance(given, tuple) else (given, None)
    kind = ir.TensorType(ir.DataType.from_numpy(spec.dtype))
    value = ir.Value(name=name, shape=ir.Shape(spec.shape), type=kind)
    if numbers is not None:
        value.const_value = ir.Tensor(np.frombuffer(numbers, spec.dtype).reshape(spec.shape))
    return value


def _cost(node: ir.Node) -> int | None:
    inputs = [None if v is None else _known(v) for v in node.inputs]
    outputs = [spec_of(v) for v in node.outputs]
    version = MINIMUM if not node.domain else 1
    return flops(node.domain, node.op_type, version, inputs, outputs, arguments(node))


def _known(value: ir.Value) -> Any:
    """The numbers of a constant of integers, such as axes; else shape and type."""
    integer = value.dtype is not None and value.dtype.is_integer()
    return array(value) if integer and value.const_value is not None else spec_of(value)


def counted(name: str) -> Cost | None:
    """The cost of a composite by what its body does; None if there is none."""
    if find(name) is None or traits.of(f"{DOMAIN}::{name}").uncounted:
        return None

    def formula(*inputs: Any, out: Results, **options: Any) -> int | None:
        wanted = tuple(each is not None for each in out)
        return _counted(name, tuple(map(_key, inputs)), wanted, tuple(sorted(options.items())))

    return Cost(DOMAIN, name, 1, formula)
