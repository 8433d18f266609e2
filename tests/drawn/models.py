"""The model of a drawn case, its sizes known or some of them open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from drawn.case import Case
from onnx import helper, numpy_helper

from gradtool.graph.families import CONTRIB, split_name

Sizes = dict[int, list[Any]]


def build(case: Case, sizes: Sizes | None = None) -> onnx.ModelProto:
    """One node; the inputs named in `sizes` have the dims given there."""
    inputs, constants, names = [], [], []
    for slot, given in enumerate(case.inputs):
        name = "" if given is None else f"x{slot}"
        names.append(name)
        if given is None:
            continue
        array = given.typed(case.dtype)
        if given.constant:
            constants.append(numpy_helper.from_array(array, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            dims = (sizes or {}).get(slot, list(array.shape))
            inputs.append(helper.make_tensor_value_info(name, kind, dims))
    domain, op = split_name(case.op)
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(op, names, outputs, name="node", domain=domain)
    node.attribute.extend(_attribute(k, v) for k, v in case.attributes.items())
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "case", inputs, results, constants)
    opsets = [helper.make_opsetid("", case.opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1 if domain == CONTRIB else 3))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    for value in model.graph.output:
        if value.type.tensor_type.elem_type:
            value.type.tensor_type.ClearField("shape")
    return model


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)


def opened(case: Case) -> list[Sizes]:
    """Which sizes are left open, in turn: all that may be, and some.

    A symbol is one size of one input, or stands for equal sizes in all.
    """
    rng = np.random.default_rng([13, case.number])
    slots = [
        s for s, g in enumerate(case.inputs)
        if g is not None and not g.constant and not g.closed and g.array.ndim
    ]  # fmt: skip
    found = []
    for chance in (1.0, 0.5):
        own = rng.random() < 0.5
        sizes = {}
        for slot in slots:
            shape = case.inputs[slot].array.shape
            named = [f"d{slot}_{a}" if own else f"n{n}" for a, n in enumerate(shape)]
            sizes[slot] = [
                d if rng.random() < chance else n for d, n in zip(named, shape, strict=True)
            ]
        if any(isinstance(d, str) for dims in sizes.values() for d in dims) and sizes not in found:
            found.append(sizes)
    return found
