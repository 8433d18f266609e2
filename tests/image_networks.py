"""Random networks of images, as tests differentiate them and plan their memory."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A network that grows by layers; `shape` is that of the last value, `[N, C, H, W]`."""

    def __init__(self, random, batch, channels, size):
        self.random = random
        self.shape = (batch, channels, size, size)
        self.last = "x"
        self.earlier = []  # names and shapes
        self.nodes, self.weights = [], []
        self.input = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)

    def weight(self, *shape, low=-1.0, high=1.0):
        name = f"w{len(self.weights)}"
        scale = max(1, int(np.prod(shape[1:]))) ** -0.5
        array = (self.random.uniform(low, high, shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op, *others, shape=None, **attributes):
        """A node that reads the last value and others."""
        self.earlier.append((self.last, self.shape))
        name = f"v{len(self.nodes)}"
        node = helper.make_node(
            op, [self.last, *others], [name], f"n{len(self.nodes)}", **attributes
        )
        self.nodes.append(node)
        self.last, self.shape = name, shape or self.shape

    def conv(self, outputs, kernel, stride=1, dilation=1, group=1, *, bias=True):
        n, c, h, w = self.shape
        reach = (kernel - 1) * dilation + 1
        pad = reach // 2
        sizes = [(s + 2 * pad - reach) // stride + 1 for s in (h, w)]
        weights = [self.weight(outputs, c // group, kernel, kernel)]
        if bias:
            weights.append(self.weight(outputs))
        self.add(
            "Conv", *weights, shape=(n, outputs, *sizes), kernel_shape=[kernel] * 2,
            strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4, group=group,
        )  # fmt: skip

    def norm(self):
        c = self.shape[1]
        statistics = [self.weight(c, low=0.5) for _ in range(4)]
        self.add("BatchNormalization", *statistics)

    def pool(self, op):
        n, c, h, w = self.shape
        if h >= 2:
            attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
            self.add(op, shape=(n, c, h // 2, w // 2), **attributes)

    def join(self, op):
        """An earlier value of the same shape added, or one of the same image concatenated."""
        n, c, *rest = self.shape
        alike = [
            (v, s)
            for v, s in self.earlier
            if s == self.shape or (op == "Concat" and s[2:] == tuple(rest))
        ]
        if not alike:
            return
        other, shape = alike[int(self.random.integers(len(alike)))]
        if op == "Concat":
            self.add(op, other, shape=(n, c + shape[1], *rest), axis=1)
        else:
            self.add(op, other)

    def model(self, *, is_looked_at=False):
        """The network with the average of its pixels, or a view of them, and a product."""
        n, c, h, w = self.shape
        if not is_looked_at:
            self.add("GlobalAveragePool", shape=(n, c, 1, 1))
            self.add("Flatten", shape=(n, c))
        else:
            self.add("Transpose", shape=(h, n, c, w), perm=[2, 0, 1, 3])
            n, c = h * n, c * w
            self.weights.append(numpy_helper.from_array(np.array([n, c]), "rows"))
            self.add("Reshape", "rows", shape=(n, c))
        self.add("Gemm", self.weight(c, 3), self.weight(3), shape=(n, 3))
        output = helper.make_tensor_value_info(self.last, TensorProto.FLOAT, self.shape)
        graph = helper.make_graph(self.nodes, "images", [self.input], [output], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def image_network(seed) -> onnx.ModelProto:
    """A random network."""
    random = np.random.default_rng(seed)

    def one(*choices):
        return choices[int(random.integers(len(choices)))]

    made = Network(random, one(1, 2, 3), one(1, 2, 3, 4), one(5, 8, 13, 16))
    for _ in range(int(random.integers(2, 9))):
        layer = one("conv", "conv", "conv", "norm", "relu", "add", "concat", "pool", "act")
        channels = made.shape[1]
        if layer == "conv":
            group = one(1, 1, channels, 2 if channels % 2 == 0 else 1)
            outputs = channels if group == channels else one(2, 4, 6, 16, 18) * 1
            outputs += -outputs % group
            made.conv(
                outputs, one(1, 3, 3, 5), one(1, 1, 2), one(1, 1, 2), group, bias=one(True, False)
            )
        elif layer == "norm":
            made.norm()
        elif layer in ("add", "concat"):
            made.join("Add" if layer == "add" else "Concat")
        elif layer == "pool":
            made.pool(one("MaxPool", "AveragePool"))
        else:
            made.add("Relu" if layer == "relu" else one("Sigmoid", "Tanh", "HardSwish"))
    return made.model()
