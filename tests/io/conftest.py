from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path) -> Write:
    """Writes a model, given as ONNX text or as a proto, and returns its path."""

    def write_model(model: str | onnx.ModelProto, name: str = "model.onnx") -> Path:
        proto = parse(model) if isinstance(model, str) else model
        path = tmp_path / name
        path.write_bytes(proto.SerializeToString())
        return path

    return write_model


def parse(body: str, opset: int = 20, ir_version: int = 10) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {body}')


@pytest.fixture
def text():
    return parse


@pytest.fixture
def external():
    """Builds a model that adds up external float tensors `w0`, `w1`, … of the given shapes."""

    def build(*shapes, location="w.bin", offset=None, length=None) -> onnx.ModelProto:
        initializers, position = [], 0
        for number, shape in enumerate(shapes):
            tensor = TensorProto(name=f"w{number}", data_type=TensorProto.FLOAT, dims=shape)
            tensor.data_location = TensorProto.EXTERNAL
            size = 4 * int(np.prod(shape))
            entries = {
                "location": location,
                "offset": position if offset is None else offset,
                "length": size if length is None else length,
            }
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))
            position += size
            initializers.append(tensor)
        names = [tensor.name for tensor in initializers]
        graph = helper.make_graph(
            [helper.make_node("Sum", ["x", *names], ["y"], name="sum")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[0])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes[0])],
            initializers,
        )
        imports = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, ir_version=10, opset_imports=imports)

    return build


@pytest.fixture
def weighted():
    """A model `y = x + w` with one float weight of that many elements."""

    def build(elements: int) -> onnx.ModelProto:
        weight = numpy_helper.from_array(np.arange(elements, dtype=np.float32), "w")
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"], name="add")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [elements])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [elements])],
            [weight],
        )
        imports = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, ir_version=10, opset_imports=imports)

    return build
