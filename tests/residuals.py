"""The residuals of each gradient rule, read off the gradients of all cases."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec

import cases
import numpy as np
import onnx
import onnx_ir as ir
from cases import Case
from checkers import build, free_inputs

from gradtool.emit.builder import Builder
from gradtool.graph.composites import DOMAIN, composites
from gradtool.graph.families import FAMILIES, full_name, split_name
from gradtool.graph.reads import reads
from gradtool.ops.driver import differentiate

_SHAPES = ("Shape", "Size")


def residuals() -> dict[str, tuple[str, ...]]:
    """By operator, the formal names of the inputs and outputs that its gradients read."""
    for family in FAMILIES:
        if find_spec(f"operators.{family}"):
            import_module(f"operators.{family}")
    found: dict[str, dict[str, None]] = {}
    for case in cases.CASES:
        if case.gradient:
            names = found.setdefault(full_name(*split_name(case.op)), {})
            names.update(dict.fromkeys(_of(case)))
    return {op: tuple(sorted(names, key=_order)) for op, names in sorted(found.items())}


def _of(case: Case) -> list[str]:
    model, _ = build(case, np.float32)
    op = Builder(model)
    node = model.graph[0]
    if node.name != "node":  # it was lowered: the operators that it became have rows of their own
        return []
    forward, wrt = set(model.graph), free_inputs(model, case)
    heads = {
        v: ir.Value(name=f"c_{v.name}", shape=v.shape, type=v.type)
        for v in model.graph.outputs
        if v.dtype is not None and v.dtype.is_floating_point()
    }
    differentiate(op, heads, wrt)
    read = {
        v for n in model.graph if n not in forward and n.op_type not in _SHAPES for v in reads(n)
    }
    formal = _formal(case, len(node.inputs), len(node.outputs))
    values = (*node.inputs, *node.outputs)
    return [name for name, v in zip(formal, values, strict=True) if v is not None and v in read]


def _formal(case: Case, inputs: int, outputs: int) -> list[str]:
    """The names that the standard gives the inputs and outputs of an operator."""
    domain, op = split_name(case.op)
    if domain == DOMAIN:
        _, *takes = inspect.signature(composites()[op].body).parameters.values()
        names = [each.name for each in takes if each.kind is each.POSITIONAL_OR_KEYWORD]
        names += [each.name for each in takes if each.kind is each.VAR_POSITIONAL] * inputs
        return names[:inputs] + [f"output {i}" for i in range(outputs)]
    try:
        schema = onnx.defs.get_schema(op, case.opset, domain)
    except onnx.defs.SchemaError:
        return [f"input {i}" for i in range(inputs)] + [f"output {i}" for i in range(outputs)]
    return [
        *(schema.inputs[min(i, len(schema.inputs) - 1)].name for i in range(inputs)),
        *(schema.outputs[min(i, len(schema.outputs) - 1)].name for i in range(outputs)),
    ]


def _order(name: str) -> tuple[str, str]:
    return name.lower(), name
