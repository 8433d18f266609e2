"""Model files that ask for much of symbolic shapes or of plans: `made(kind, size)`.

`SIZES` are kinds of `size` open sizes, `NODES` kinds of about `size` nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Graph:
    """A graph under construction: a call is a node, and gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def input(self, name: str, *shape: int | str) -> str:
        """An input of floats."""
        self.inputs.append(helper.make_tensor_value_info(name, FLOAT, shape))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A parameter."""
        return self.constant(name, np.full(shape, 0.1, np.float32))

    def constant(self, name: str, values: object) -> str:
        """An initializer."""
        self.weights[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def parts(self, count: int) -> list[str]:
        """Inputs of an open number of rows each, times one weight."""
        self.weight("w", 4, 4)
        return [self("MatMul", self.input(f"x{i}", f"n{i}", 4), "w") for i in range(count)]

    def join(self, *values: str) -> str:
        """Rows behind rows."""
        return self("Concat", *values, axis=0)

    def model(self, result: str) -> onnx.ModelProto:
        """The model whose loss is the mean of a value."""
        loss = self("ReduceMean", result, keepdims=0)
        graph = helper.make_graph(
            self.nodes, "g", self.inputs, [helper.make_tensor_value_info(loss, FLOAT, [])],
            list(self.weights.values()),
        )  # fmt: skip
        join = helper.make_function(
            "local", "Join", ["a", "b"], ["c"],
            [helper.make_node("Concat", ["a", "b"], ["c"], axis=0)], [helper.make_opsetid("", 18)],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=[join])


def _chain(g: Graph, size: int) -> str:
    return reduce(g.join, g.parts(size))


def _activated(g: Graph, size: int) -> str:
    return reduce(lambda a, b: g("Relu", g.join(a, b)), g.parts(size))


def _tree(g: Graph, size: int) -> str:
    parts = g.parts(size)
    while len(parts) > 1:
        parts = [g.join(*parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0]


def _fan(g: Graph, size: int) -> str:
    return g.join(*g.parts(size))


def _alone(g: Graph, size: int) -> str:
    means = [g("ReduceMean", part, keepdims=0) for part in g.parts(size)]
    return reduce(lambda a, b: g("Add", a, b), means)


def _added(g: Graph, size: int) -> str:
    return reduce(lambda a, b: g("Add", a, b), g.parts(size))


def _chosen(g: Graph, size: int) -> str:
    zero = g.constant("zero", np.float32(0))
    return reduce(lambda a, b: g("Where", g("Greater", b, zero), a, b), g.parts(size))


def _flat(g: Graph, size: int) -> str:
    all_of_it = g.constant("all", [-1])
    return reduce(g.join, [g("Reshape", part, all_of_it) for part in g.parts(size)])


def _several(g: Graph, size: int) -> str:
    """Four open sizes each."""
    all_of_it, scale = g.constant("all", [-1]), g.weight("w", 1)
    inputs = (
        g.input(f"x{i}", *(f"n{j}" for j in range(i, min(i + 4, size)))) for i in range(0, size, 4)
    )
    return reduce(g.join, [g("Reshape", g("Mul", x, scale), all_of_it) for x in inputs])


def _sliced(g: Graph, size: int) -> str:
    zero, one, far = (g.constant(f"c{n}", [n]) for n in (0, 1, 2**31 - 1))
    parts = [g("Slice", part, one, far, zero) for part in g.parts(size)]
    return reduce(lambda a, b: g("Slice", g.join(a, b), one, far, zero), parts)


def _padded(g: Graph, size: int) -> str:
    pads = g.constant("pads", [1, 0, 2, 0])
    return reduce(lambda a, b: g("Pad", g.join(a, g("Pad", b, pads)), pads), g.parts(size))


def _expanded(g: Graph, size: int) -> str:
    bias = g.weight("b", 1, 4)

    def with_bias(a: str) -> str:
        return g("Add", a, g("Expand", bias, g("Shape", a)))

    return reduce(lambda a, b: with_bias(g.join(a, with_bias(b))), g.parts(size))


def _split(g: Graph, size: int) -> str:
    parts = g.parts(size)
    sizes = g.join(*(g("Shape", part, end=1) for part in parts))
    pieces = [f"piece{i}" for i in range(size)]
    g.nodes.append(helper.make_node("Split", [g.join(*parts), sizes], pieces, axis=0))
    return reduce(lambda a, b: g("Add", a, b), [g("ReduceMean", p, keepdims=0) for p in pieces])


def _pooled(g: Graph, size: int) -> str:
    weight = g.weight("w", 2, 2, 3)
    inputs = [g.input(f"x{i}", 1, 2, f"n{i}") for i in range(size)]
    parts = [g("Conv", x, weight, pads=[1, 1]) for x in inputs]
    window = {"kernel_shape": [2], "strides": [2]}
    return reduce(lambda a, b: g("MaxPool", g("Concat", a, b, axis=2), **window), parts)


def _called(g: Graph, size: int) -> str:
    return reduce(lambda a, b: g("Join", a, b, domain="local"), g.parts(size))


def _branched(g: Graph, size: int) -> str:
    g.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))

    def either(a: str, b: str) -> str:
        bodies = {}
        for key, pair in (("then_branch", (a, b)), ("else_branch", (b, a))):
            name = f"{key}{len(g.nodes)}"
            node = helper.make_node("Concat", pair, [name], axis=0)
            result = helper.make_tensor_value_info(name, FLOAT, None)
            bodies[key] = helper.make_graph([node], key, [], [result])
        return g("If", "flag", **bodies)

    return reduce(either, g.parts(size))


def _attending(g: Graph, size: int) -> str:
    def attend(keys: str, part: str) -> str:
        scores = g("Softmax", g("MatMul", part, g("Transpose", keys, perm=[1, 0])), axis=-1)
        return g.join(keys, g("MatMul", scores, keys))

    return reduce(attend, g.parts(size))


def _deep(g: Graph, size: int) -> str:
    ops = ("Tanh", "Relu", "Sigmoid", "Exp", "Neg", "Softplus")
    return reduce(lambda a, i: g(ops[i % len(ops)], a), range(size), *g.parts(1))


def _wide(g: Graph, size: int) -> str:
    (x,) = g.parts(1)
    return reduce(lambda a, b: g("Add", a, b), [g("Tanh", g("Relu", x)) for _ in range(size // 3)])


def _crossed(g: Graph, size: int) -> str:
    """Each node reads what one just before and one at random have computed."""
    random, values = np.random.default_rng(size), g.parts(1)
    for i in range(size):
        other = values[int(random.integers(len(values)))]
        values.append(g("Tanh", values[-1]) if i % 2 else g("Mul", values[-1], other))
    return values[-1]


def _mobile(g: Graph, size: int) -> str:
    """Inverted residuals with squeeze and excitation, 12 nodes each."""
    x = g("Conv", g.input("x", "batch", 3, 32, 32), g.weight("stem", 8, 3, 3, 3), pads=[1] * 4)
    for i in range(size // 12):
        wide = g("HardSwish", g("Conv", x, g.weight(f"e{i}", 16, 8, 1, 1)))
        deep = g("Conv", wide, g.weight(f"d{i}", 16, 1, 3, 3), group=16, pads=[1] * 4)
        deep = g("HardSwish", deep)
        mean = g("GlobalAveragePool", deep)
        gate = g("Relu", g("Conv", mean, g.weight(f"s{i}", 4, 16, 1, 1)))
        gate = g("HardSigmoid", g("Conv", gate, g.weight(f"t{i}", 16, 4, 1, 1)))
        x = g("Add", x, g("Conv", g("Mul", deep, gate), g.weight(f"p{i}", 8, 16, 1, 1)))
    return x


def _attention(g: Graph, size: int) -> str:
    """Layers of attention over a cache, 11 nodes each."""
    x = g.input("x", "batch", 16, 32)
    for i in range(size // 11):
        q, k, v = (g("MatMul", x, g.weight(f"w{n}{i}", 32, 32)) for n in "qkv")
        scores = g("Softmax", g("MatMul", q, g("Transpose", k, perm=[0, 2, 1])), axis=-1)
        x = g("Add", x, g("MatMul", g("MatMul", scores, v), g.weight(f"o{i}", 32, 32)))
        wide = g("Tanh", g("MatMul", x, g.weight(f"u{i}", 32, 64)))
        x = g("Add", x, g("MatMul", wide, g.weight(f"d{i}", 64, 32)))
    return x


def _recurrent(g: Graph, size: int) -> str:
    """A gated cell unrolled, 7 nodes a turn."""
    w, u = g.weight("w", 8, 8), g.weight("u", 8, 8)
    state = g.input("h", "batch", 8)
    for i in range(size // 7):
        gate = g(
            "Sigmoid", g("Add", g("MatMul", g.input(f"x{i}", "batch", 8), w), g("MatMul", state, u))
        )
        state = g("Add", state, g("Mul", gate, g("Tanh", state)))
    return state


def _turns(g: Graph, size: int) -> str:
    """Scans one behind the other, with 4 nodes in each."""
    (rows,) = g.parts(1)
    for i in range(size // 5):
        start = g.constant(f"s{i}", np.zeros(4, np.float32))
        nodes = [
            helper.make_node("Add", [f"a{i}", f"r{i}"], [f"b{i}"]),
            helper.make_node("Tanh", [f"b{i}"], [f"c{i}"]),
            helper.make_node("Mul", [f"c{i}", f"r{i}"], [f"d{i}"]),
            helper.make_node("Sigmoid", [f"d{i}"], [f"o{i}"]),
        ]
        ends = [helper.make_tensor_value_info(f"{n}{i}", FLOAT, [4]) for n in "arco"]
        body = helper.make_graph(nodes, "turn", ends[:2], ends[2:])
        rows = f"rows{i}"
        before = f"rows{i - 1}" if i else g.nodes[0].output[0]
        outputs = [f"last{i}", rows]
        g.nodes.append(
            helper.make_node("Scan", [start, before], outputs, body=body, num_scan_inputs=1)
        )
    return rows


Kind = Callable[[Graph, int], str]
SIZES: dict[str, Kind] = {
    "chain": _chain, "activated": _activated, "tree": _tree, "fan": _fan, "alone": _alone,
    "added": _added, "chosen": _chosen, "flat": _flat, "several": _several, "sliced": _sliced,
    "padded": _padded, "expanded": _expanded, "split": _split, "pooled": _pooled,
    "called": _called, "branched": _branched, "attending": _attending,
}  # fmt: skip
NODES: dict[str, Kind] = {
    "deep": _deep, "wide": _wide, "crossed": _crossed, "mobile": _mobile,
    "attention": _attention, "recurrent": _recurrent, "turns": _turns,
}  # fmt: skip
KINDS = SIZES | NODES


def made(kind: str, size: int) -> onnx.ModelProto:
    """A model of one kind."""
    graph = Graph()
    return graph.model(KINDS[kind](graph, size))
