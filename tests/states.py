"""Networks that hold every kind of tensor in one name space, drawn; and what selectors may take.

Blocks stand in a drawn order, and a tensor is read as it is or laid out by a node first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = 4
OPEN, NAMED, CLOSED = "open", "named", "closed"  # to globs; to a full name; to neither


@dataclass
class Network:
    """Nodes and tensors so far; by name, who may take a tensor, and what is said of it."""

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    kinds: dict[str, tuple[str, str]] = field(default_factory=dict)
    last: str = "x"

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        number = len(self.nodes)
        names = [f"v{number}", *(f"v{number}_{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n{number}", **attributes))
        return names[0]

    def hold(
        self, name: str, array: object, to: str = OPEN, said: str = "", *, plain: bool = False
    ):
        """A tensor of the name space `head`, perhaps behind a node that lays it out."""
        name, array = f"head.{name}", np.asarray(array)
        self.tensors[name], self.kinds[name] = array, (to, said)
        if plain or self.rng.random() < 0.6:
            return name
        return self.add("Identity", name)

    def model(self) -> onnx.ModelProto:
        kind, sizes = onnx.TensorProto.FLOAT, ["b", SIZE, SIZE]
        graph = helper.make_graph(
            self.nodes, "g", [helper.make_tensor_value_info("x", kind, sizes)],
            [helper.make_tensor_value_info(self.last, kind, sizes)],
            [numpy_helper.from_array(a, n) for n, a in self.tensors.items()],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _product(net: Network) -> None:
    w = net.hold("w", net.rng.normal(size=(SIZE, SIZE)).astype("f"), plain=True)
    net.last = net.add("MatMul", net.last, w)
    net.last = net.add("Add", net.last, net.hold("b", np.ones(SIZE, "f")))


def _norm(net: Network) -> None:
    said = "a running statistic"
    scale, bias = net.hold("bn.weight", np.ones(SIZE, "f")), net.hold("bn.bias", np.ones(SIZE, "f"))
    mean = net.hold("bn.mean", np.full(SIZE, 0.5, "f"), CLOSED, said, plain=True)
    var = net.hold("bn.var", np.full(SIZE, 2, "f"), CLOSED, said, plain=True)
    net.last = net.add("BatchNormalization", net.last, scale, bias, mean, var)


def _dropout(net: Network) -> None:
    ratio = net.hold("ratio", np.float32(0.25), CLOSED, "a setting of its operator")
    net.last = net.add("Dropout", net.last, ratio)


def _mask(net: Network) -> None:
    tril = np.where(np.tri(SIZE) > 0, 0, -np.inf).astype("f")
    net.last = net.add("Add", net.last, net.hold("mask", tril, CLOSED, "a mask"))
    net.last = net.add("Softmax", net.last)


def _quantised(net: Network) -> None:
    codes = net.rng.integers(-9, 9, (SIZE, SIZE)).astype(np.int8)
    codes = net.hold("q.codes", codes, CLOSED, "INT8")
    scale = net.hold("q.scale", np.full(SIZE, 0.1, "f"), NAMED, "a quantisation scale")
    zero = net.hold("q.zero", np.zeros(SIZE, np.int8), CLOSED, "INT8")
    net.last = net.add("MatMul", net.last, net.add("DequantizeLinear", codes, scale, zero, axis=1))


def _number(net: Network) -> None:
    number = net.hold("number", np.float32(1.5))
    net.last = net.add("Mul", net.last, number)


def _rows(net: Network) -> None:
    order = net.rng.permutation(SIZE).astype(np.int64)
    net.last = net.add("Gather", net.last, net.hold("order", order, CLOSED, "INT64"), axis=1)


def _choice(net: Network) -> None:
    keeps = net.hold("keeps", np.eye(SIZE) > 0, CLOSED, "BOOL")
    net.last = net.add("Where", keeps, net.add("Tanh", net.last), net.last)


def _resize(net: Network) -> None:
    scales = net.hold("scales", np.ones(3, "f"), CLOSED, "a setting of its operator", plain=True)
    net.last = net.add("Resize", net.last, "", scales)


BLOCKS: tuple[Callable[[Network], None], ...] = (
    _product, _norm, _dropout, _mask, _quantised, _number, _rows, _choice, _resize,
)  # fmt: skip


def network(seed: int) -> Network:
    """All blocks, in a drawn order, and a product of another name space before them."""
    net = Network(np.random.default_rng(seed))
    net.tensors["body.w"] = net.rng.normal(size=(SIZE, SIZE)).astype("f")
    net.last = net.add("MatMul", net.last, "body.w")
    for number in net.rng.permutation(len(BLOCKS)):
        BLOCKS[number](net)
    return net


def globs(name: str) -> Iterator[str]:
    """Globs that match this tensor and no other."""
    yield f"*d{name[4:]}"
    yield f"{name[:-1]}?" if name.count(".") > 1 else f"[h]{name[1:]}"
