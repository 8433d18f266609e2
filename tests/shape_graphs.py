"""Random graphs that reckon with sizes and constants, and end in a tensor of the size they find."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZES = (3, 5, 4)
NAMES = ("n", "m", "k")


class _Graph:
    """Integer vectors that are known so far, with what each holds."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.known: list[tuple[str, np.ndarray]] = []

    def constant(self, array: np.ndarray) -> str:
        """As an initializer or as a node."""
        name = f"c{len(self.nodes) + len(self.tensors)}"
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if self.rng.random() < 0.5:
            self.tensors.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        return name

    def emit(self, op: str, *inputs: str, **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n{name}", **attributes))
        return name

    def learn(self, name: str, array: np.ndarray) -> None:
        self.known.append((name, np.asarray(array)))

    def pick(self) -> tuple[str, np.ndarray]:
        return self.known[self.rng.integers(len(self.known))]

    def step(self) -> None:
        """One more value, a vector of small integers."""
        getattr(self, f"_{self.rng.choice(KINDS)}")()

    def _binary(self) -> None:
        (a, x), small = self.pick(), self.rng.integers(1, 5)
        op, f = (
            ("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Mod", np.mod),
            ("Div", lambda p, q: np.trunc(p / q).astype(np.int64)), ("Max", np.maximum),
        )[self.rng.integers(6)]  # fmt: skip
        self.learn(
            self.emit(op, a, self.constant(np.array([small]))), np.clip(f(x, small), -99, 99)
        )
        if np.abs(f(x, small)).max(initial=0) > 99:
            self.known.pop()

    def _compared(self) -> None:
        (a, x), (b, y) = self.pick(), self.pick()
        if len(x) != len(y):
            return
        where = self.emit("Where", self.emit("Less", a, b), a, b)
        self.learn(where, np.where(x < y, x, y))

    def _concat(self) -> None:
        (a, x), (b, y) = self.pick(), self.pick()
        if len(x) + len(y) <= 12:
            self.learn(self.emit("Concat", a, b, axis=0), np.concatenate([x, y]))

    def _gather(self) -> None:
        a, x = self.pick()
        at = self.rng.integers(-len(x), len(x), 2)
        self.learn(self.emit("Gather", a, self.constant(at)), x[at])

    def _slice(self) -> None:
        a, x = self.pick()
        ends = [self.constant(np.array([v])) for v in (len(x), -len(x) - 1, 0, -1)]
        self.learn(self.emit("Slice", a, *ends), x[::-1])

    def _range(self) -> None:
        a, x = self.pick()
        if not 1 <= len(x) <= 12:
            return
        length = self.emit("Squeeze", self.emit("Shape", a))
        made = self.emit("Range", self.constant(np.int64(0)), length, self.constant(np.int64(1)))
        self.learn(made, np.arange(len(x)))

    def _summed(self) -> None:
        a, x = self.pick()
        if np.abs(np.cumsum(x)).max(initial=0) < 99:
            self.learn(self.emit("CumSum", a, self.constant(np.int64(0))), np.cumsum(x))

    def _reduced(self) -> None:
        a, x = self.pick()
        op, f = (("ReduceMax", np.max), ("ReduceMin", np.min))[self.rng.integers(2)]
        self.learn(self.emit(op, a, keepdims=1), f(x, keepdims=True))

    def _top(self) -> None:
        a, x = self.pick()
        k = int(self.rng.integers(1, len(x) + 1))
        values = self.emit("TopK", a, self.constant(np.array([k])))
        self.nodes[-1].output.append(f"{values}i")
        self.learn(values, np.sort(x)[::-1][:k])

    def _found(self) -> None:
        a, x = self.pick()
        if np.any(x != 0):
            flat = self.emit("Squeeze", self.emit("NonZero", a), self.constant(np.array([0])))
            self.learn(flat, np.flatnonzero(x))

    def _rounded(self) -> None:
        a, x = self.pick()
        op, f = (("Ceil", np.ceil), ("Floor", np.floor))[self.rng.integers(2)]
        half = self.emit("Div", self.emit("Cast", a, to=1), self.constant(np.float32(2)))
        self.learn(self.emit("Cast", self.emit(op, half), to=7), f(x / 2).astype(np.int64))

    def _scattered(self) -> None:
        a, x = self.pick()
        at, new = self.rng.integers(len(x), size=1), self.rng.integers(0, 9, 1)
        made = self.emit("ScatterElements", a, self.constant(at), self.constant(new))
        y = x.copy()
        y[at] = new
        self.learn(made, y)

    def _tiled(self) -> None:
        a, x = self.pick()
        if len(x) <= 6:
            self.learn(self.emit("Tile", a, self.constant(np.array([2]))), np.tile(x, 2))


KINDS = tuple(sorted(n[1:] for n, f in vars(_Graph).items() if n[0] == "_" and n[1] != "_"))


def shape_graph(seed: int, *, is_open: bool) -> onnx.ModelProto:
    """`y` is `x` reduced to a number, expanded to four sizes that a dozen steps find, times `w`.

    The sizes of `x` are fixed, or symbols that stand for the same.
    """
    g = _Graph(seed)
    g.learn(g.emit("Shape", "x"), np.array(SIZES))
    g.learn(g.constant(g.rng.integers(-4, 9, 4)), np.zeros(0, np.int64))
    g.known[-1] = g.known[-1][0], _value(g, g.known[-1][0])
    for _ in range(12):
        g.step()
    name, held = g.known[-1]
    size = g.emit("Min", g.emit("Abs", name), g.constant(np.array([3])))
    size = g.emit("Concat", size, g.constant(np.ones(4, np.int64)), axis=0)
    size = g.emit("Slice", size, *(g.constant(np.array([v])) for v in (0, 4)))
    size = g.emit("Reshape", size, g.constant(np.array([4])))
    total = g.emit("Mul", g.emit("ReduceSum", g.emit("Tanh", "x"), keepdims=0), "w")
    g.nodes.append(helper.make_node("Expand", [total, size], ["y"]))
    shape = [*np.minimum(np.abs(held), 3), 1, 1, 1, 1][:4]
    dims = NAMES if is_open else SIZES
    graph = helper.make_graph(
        g.nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", "c", "d"])],
        [*g.tensors, numpy_helper.from_array(np.ones(1, np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    model.metadata_props.add(key="test.shape", value=",".join(map(str, shape)))
    return model


def _value(g: _Graph, name: str) -> np.ndarray:
    stored = {t.name: t for t in g.tensors}
    stored |= {n.output[0]: n.attribute[0].t for n in g.nodes if n.op_type == "Constant"}
    return numpy_helper.to_array(stored[name])
