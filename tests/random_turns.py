"""Random loops of many turns: what they carry, read and write, and which turns are taken again.

States, slices and weights are matrices of one shape, kept small by `Tanh`; a Scan reads and writes
along any axis, in either direction.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (3, 3)
COUNTS = (1, 2, 3, 5, 6, 7, 12)
UNARY = ("Tanh", "Sigmoid", "Sin", "Softplus", "Relu")
BINARY = ("Add", "Mul", "MatMul", "Sub")


@dataclass
class Body:
    """A body under construction, and the matrices that its nodes may read."""

    readable: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)


class Turns:
    """Draws one model with one loop, perhaps with another one inside. `used` are its features."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.numbers = np.random.default_rng(seed)
        self.names = 0
        self.used: set[str] = set()
        self.initializers: list[onnx.TensorProto] = []
        self.count = self.random.choice(COUNTS)
        self.kind = self._one_of("Scan", "Loop")

    def model(self) -> onnx.ModelProto:
        """`loss = mean(…)` of the last states and of the rows of all turns."""
        self._array("w", self.numbers.standard_normal(SHAPE) / 2)
        self._array("v", self.numbers.standard_normal(SHAPE) / 2)
        top = Body(["w", "v", "h"])
        results = self._loop(top, self.kind, self.count, depth=0)
        for place, result in enumerate(results):
            square = self._emit(top, "Mul", [result, result])
            results[place] = self._emit(top, "ReduceMean", [square], keepdims=0)
        top.nodes.append(helper.make_node("Sum", results, ["loss"], name="loss_node"))
        info = helper.make_tensor_value_info
        inputs = [info("h", TensorProto.FLOAT, SHAPE), info("x", TensorProto.FLOAT, self._xs())]
        graph = helper.make_graph(
            top.nodes, "turns", inputs, [info("loss", TensorProto.FLOAT, [])], self.initializers
        )
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])

    def feeds(self) -> dict[str, np.ndarray]:
        """Arrays for the inputs of the model."""
        draw = np.random.default_rng(0).standard_normal
        return {
            "h": draw(SHAPE).astype(np.float32), "x": draw(self._xs()).astype(np.float32)
        }  # fmt: skip

    def lengths(self) -> list[tuple[int, ...]]:
        """How many turns to take again at once, and of those: all kinds that the loop has."""
        n = self.count
        found = [(1,)]
        if n > 1:
            found += [(n,), (self.random.randint(2, n), 1)]
        if n > 2:
            found.append((self.random.randint(2, n - 1),))
        if n > 5:
            found.append((self.random.randint(4, n - 1), self.random.randint(2, 3), 1))
        return found

    # ---------------------------------------------------------------------- pieces

    def _xs(self) -> tuple[int, ...]:
        return (self.count, *SHAPE)

    def _one_of(self, *names: str) -> str:
        name = self.random.choice(names)
        self.used.add(name)
        return name

    def _name(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"

    def _array(self, name: str, array: object, dtype: type = np.float32) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def _emit(self, body: Body, op: str, inputs: list[str], **attributes: object) -> str:
        name = self._name("v")
        body.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def _compute(self, body: Body) -> str:
        """A few nodes; the last is tame."""
        for _ in range(self.random.randint(2, 4)):
            if self.random.random() < 0.4:
                made = self._emit(body, self._one_of(*UNARY), [self.random.choice(body.readable)])
            else:
                pair = self.random.choices(body.readable, k=2)
                made = self._emit(body, self._one_of(*BINARY), pair)
            body.readable.append(made)
        body.readable.append(self._emit(body, "Tanh", [body.readable[-1]]))
        return body.readable[-1]

    def _typed(self, name: str, *sizes: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)

    # ------------------------------------------------------------------------ loop

    def _loop(self, outer: Body, kind: str, count: int, depth: int) -> list[str]:
        """The final states and the rows of a loop of so many turns."""
        states = [self._name("state") for _ in range(self.random.randint(1, 3))]
        rows = self.random.randint(0, 2)
        inner = Body([*outer.readable[-3:], *states])
        formal = [self._typed(name, *SHAPE) for name in states]
        heads: list[onnx.ValueInfoProto] = []
        returned: list[str] = []
        array, axis = "", 0
        if kind == "Loop":
            heads, returned = self._counted(inner, depth)
        else:
            array, axis = self._slice(outer, inner, count, depth)
            formal.append(self._typed(inner.readable[-1], *SHAPE))
        self._compute(inner)
        if not depth and self.random.random() < 0.4:
            self.used.add("a loop in a loop")
            nested = self._loop(inner, self.random.choice(("Scan", "Loop")), 3, depth=1)
            inner.readable.append(self._emit(inner, "Tanh", [nested[0]]))
        news = [self._compute(inner) for _ in states]
        made = [self._compute(inner) for _ in range(rows)]
        results = [self._typed(name, *SHAPE) for name in (*news, *made)]
        conditions = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in returned]
        results = [*conditions, *results]
        body = helper.make_graph(inner.nodes, self._name("body"), [*heads, *formal], results)
        given = [self.random.choice(outer.readable) for _ in states]
        outputs = [self._name("result") for _ in (*states, *made)]
        attributes: dict[str, object] = {}
        inputs = [self._array(self._name("count"), count, np.int64), "", *given]
        if kind == "Scan":
            inputs = [*given, array]
            attributes = {"num_scan_inputs": 1, **self._tracks(axis, rows)}
        outer.nodes.append(
            helper.make_node(kind, inputs, outputs, name=outputs[0], body=body, **attributes)
        )
        return outputs

    def _counted(self, inner: Body, depth: int) -> tuple[list[onnx.ValueInfoProto], list[str]]:
        """Number and condition of a Loop, which reads a row of `x`; what a turn returns first."""
        turn, going = self._name("turn"), self._name("going")
        heads = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        ]
        if not depth:
            inner.readable.append(self._emit(inner, "Gather", ["x", turn], axis=0))
        number = self._emit(inner, "Cast", [turn], to=TensorProto.FLOAT)
        inner.readable.append(self._emit(inner, "Add", [inner.readable[-1], number]))
        return heads, [self._emit(inner, "Identity", [going])]

    def _slice(self, outer: Body, inner: Body, count: int, depth: int) -> tuple[str, int]:
        """What a Scan reads, `x` or a matrix in each turn, and along which axis."""
        axis = self.random.choice((0, 1, 2, -1))
        self.used.add(f"axis {axis}")
        if depth:
            shape = self._array(self._name("shape"), [count, *SHAPE], np.int64)
            array = self._emit(outer, "Expand", [self.random.choice(outer.readable), shape])
        else:
            array = "x"
        perm = {0: [0, 1, 2], 1: [1, 0, 2]}.get(axis, [1, 2, 0])
        inner.readable.append(self._name("slice"))
        return self._emit(outer, "Transpose", [array], perm=perm), axis

    def _tracks(self, axis: int, rows: int) -> dict[str, list[int]]:
        backwards = self._one_of("forward", "backward") == "backward"
        found = {"scan_input_axes": [axis], "scan_input_directions": [int(backwards)]}
        if rows:
            found["scan_output_axes"] = [self.random.choice((0, 1, 2)) for _ in range(rows)]
            found["scan_output_directions"] = [self.random.choice((0, 1)) for _ in range(rows)]
        return found
