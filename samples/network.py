"""A graph under construction: the little that the samples need on top of `onnx.helper`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Network:
    """Collects nodes, weights, inputs and outputs; a value is passed around by its name.

    Weights are uniform with variance 1 / fan-in.  They use `random()` only, whose numbers are
    the same on every machine and in every release of numpy.
    """

    def __init__(self, name: str, *, seed: int) -> None:
        self.name = name
        self.random = np.random.Generator(np.random.PCG64(seed)).random
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: int, shape: Sequence[int | str]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, shape: Sequence[int | str]) -> str:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, shape))
        return name

    def weight(self, name: str, shape: Sequence[int], fan_in: int) -> str:
        values = (2 * self.random(tuple(shape)) - 1) * math.sqrt(3 / fan_in)
        return self.tensor(name, values.astype(np.float32))

    def zeros(self, name: str, shape: Sequence[int]) -> str:
        return self.tensor(name, np.zeros(shape, np.float32))

    def ones(self, name: str, shape: Sequence[int]) -> str:
        return self.tensor(name, np.ones(shape, np.float32))

    def integers(self, name: str, values: int | Sequence[int]) -> str:
        return self.tensor(name, np.array(values, np.int64))

    def tensor(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """A `Constant` node: a float that is no weight, hence not trained."""
        return self.op("Constant", name, value_float=value)

    def op(self, op_type: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of one output, `NAME.out`."""
        return self.node(op_type, name, inputs, [f"{name}.out"], **attributes)[0]

    def node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        **attributes: Any,
    ) -> Sequence[str]:
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **attributes))
        return outputs

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.weights)
        return helper.make_model(
            graph,
            producer_name="gradtool samples",
            ir_version=9,
            opset_imports=[helper.make_opsetid("", 20)],
        )
