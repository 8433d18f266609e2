"""Random chains of products, of every form beside which an adapter may stand."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

FORMS = ("matmul", "left", "gemm", "gemm left", "transposed", "shared", "images", "series")
IMAGE = 2, 2, 2  # channels, height, width


class Chain:
    """A model that grows by products; `x` is a matrix [rows, width], whatever it went through."""

    def __init__(self, draw: Any, dtype: Any) -> None:
        self.draw, self.dtype = draw, np.dtype(dtype)
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        self.nodes: list[Any] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.rows, self.width = self.size(), self.size()
        self.start = self.rows, self.width
        self.x = "x"

    def size(self) -> int:
        return self.draw(st.integers(2, 5))

    def flag(self) -> int:
        return self.draw(st.integers(0, 1))

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.tensors)}"
        self.tensors[name] = self.rng.standard_normal(shape).astype(self.dtype)
        return name

    def sizes(self, *values: int) -> str:
        name = f"sizes{len(self.tensors)}"
        self.tensors[name] = np.array(values)
        return name

    def emit(self, op: str, *inputs: str, **attributes: Any) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def turned(self, x: str, flip: int) -> str:
        return self.emit("Transpose", x, perm=[1, 0]) if flip else x

    def add(self, form: str) -> None:
        """Append a product of a form, and what bends it."""
        rows, width, out = self.rows, self.width, self.size()
        alpha = self.draw(st.sampled_from((1.0, 0.5)))
        one, two = self.flag(), self.flag()
        if form == "matmul":
            y = self.emit("MatMul", self.x, self.weight(width, out))
        elif form == "gemm":
            shape = (out, width) if two else (width, out)
            given = self.turned(self.x, one), self.weight(*shape), self.weight(out)
            y = self.emit("Gemm", *given, transA=one, transB=two, alpha=alpha)
        elif form == "transposed":
            y = self.emit("MatMul", self.x, self.turned(self.weight(out, width), 1))
        elif form == "shared":  # there by a weight, and back by its transpose
            w = self.weight(width, out)
            there = self.emit("MatMul", self.x, w)
            y, out = self.emit("Gemm", there, w, transB=1), width
        elif form == "images":
            y = self._images(1 + one)
            out = 1
        elif form == "series":
            y = self._series(out)
        else:
            shape = (rows, out) if one and form == "gemm left" else (out, rows)
            w = self.weight(*shape)
            if form == "left":
                y = self.emit("MatMul", w, self.x)
            else:
                y = self.emit("Gemm", w, self.turned(self.x, two), transA=one, transB=two)
            self.rows, out = out, width
        self.width = out
        self.x = self.emit("Tanh", y)

    def _images(self, groups: int) -> str:
        channels = IMAGE[0]
        flat = self.emit("MatMul", self.x, self.weight(self.width, int(np.prod(IMAGE))))
        image = self.emit("Reshape", flat, self.sizes(self.rows, *IMAGE))
        w = self.weight(2 * groups, channels // groups, 3, 3)
        made = self.emit("Conv", image, w, pads=[1] * 4, group=groups, kernel_shape=[3, 3])
        mean = self.emit("Flatten", self.emit("GlobalAveragePool", made))
        return self.emit("Gemm", mean, self.weight(1, 2 * groups), transB=1)

    def _series(self, out: int) -> str:
        line = self.emit("Reshape", self.x, self.sizes(self.rows, 1, self.width))
        given = line, self.weight(out, 1, 2), self.weight(out)
        made = self.emit("Conv", *given, pads=[1, 0], strides=[2])
        return self.emit("Flatten", self.emit("GlobalAveragePool", made))

    def model(self) -> bytes:
        """The bytes of the model, whose output is y."""
        self.nodes.append(helper.make_node("Identity", [self.x], ["y"], name="y"))
        kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        assert kind in (TensorProto.FLOAT, TensorProto.DOUBLE)
        graph = helper.make_graph(
            self.nodes, "chain",
            [helper.make_tensor_value_info("x", kind, self.start)],
            [helper.make_tensor_value_info("y", kind, [self.rows, self.width])],
            [numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()

    def batch(self) -> dict[str, np.ndarray]:
        return {"x": self.rng.standard_normal(self.start).astype(self.dtype)}


@st.composite
def chains(draw, dtype=np.float64):
    """The bytes of a model, and a batch for it."""
    chain = Chain(draw, dtype)
    for form in draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=4)):
        chain.add(form)
    return chain.model(), chain.batch()
