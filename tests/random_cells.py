"""Random recurrent networks as a Loop, as tf2onnx writes those of Keras.

The time is the first axis of what the Loop reads by its turn.  Sizes of the batch and of the time
are known or open; weights, biases and the bounds of slices are the body's own or captured; gates
are cut by Split or Slice; turns run forward or backward, to the end of the time or while a counter
that the Loop carries is below it, and past the length of a sequence the state stands still.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GATES = {"simple": 1, "gru": 3, "lstm": 4}


@dataclass
class _Graph:
    """Nodes and initializers of a graph under construction."""

    nodes: list[onnx.NodeProto]
    initializers: list[onnx.TensorProto]


class Cells:
    """Draws one network. `used` are the features that it has, for what a sweep covers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.numbers = np.random.default_rng(seed)
        self.count = 0
        self.used: set[str] = set()
        self.batch, self.time, self.features, self.units = (
            self.random.choice(few) for few in ((1, 2, 3), (1, 3, 4), (2, 5), (2, 3))
        )
        self.outer, self.inner = _Graph([], []), _Graph([], [])

    def model(self) -> onnx.ModelProto:
        """`loss = mean(…)` of the last state and of the states of all turns."""
        self.kind = self._one_of("simple", "gru", "lstm")
        self.open = self._one_of("known sizes", "open sizes") == "open sizes"
        last, rows = self._loop()
        total = self._emit(
            self.outer, "Add", self._mean(self.outer, last), self._mean(self.outer, rows)
        )
        self.outer.nodes.append(helper.make_node("Identity", [total], ["loss"], name="loss_node"))
        batch, time = ("batch", "time") if self.open else (self.batch, self.time)
        info = helper.make_tensor_value_info
        inputs = [info("x", TensorProto.FLOAT, [batch, time, self.features])]
        if "lengths" in self.used:
            inputs.append(info("length", TensorProto.INT64, [batch]))
        graph = helper.make_graph(
            self.outer.nodes, "cells", inputs, [info("loss", TensorProto.FLOAT, [])],
            self.outer.initializers,
        )  # fmt: skip
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])

    def feeds(self) -> dict[str, np.ndarray]:
        """Arrays for the inputs of the model."""
        shape = (self.batch, self.time, self.features)
        fed = {"x": self.numbers.standard_normal(shape).astype(np.float32)}
        if "lengths" in self.used:
            fed["length"] = self.numbers.integers(1, self.time + 1, self.batch)
        return fed

    # ---------------------------------------------------------------------- pieces

    def _one_of(self, *names: str) -> str:
        name = self.random.choice(names)
        self.used.add(name)
        return name

    def _name(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def _emit(self, graph: _Graph, op: str, *inputs: str, **attributes: object) -> str:
        name = self._name()
        graph.nodes.append(
            helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attributes)
        )
        return name

    def _array(self, graph: _Graph, array: object) -> str:
        name = self._name("const_")
        graph.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _held(self, array: object) -> str:
        """An array that the body reads: its own, or one from outside."""
        place = self._one_of("the body's own", "captured")
        return self._array(self.inner if place == "the body's own" else self.outer, array)

    def _weight(self, *shape: int) -> str:
        return self._held((self.numbers.standard_normal(shape) / 2).astype(np.float32))

    def _mean(self, graph: _Graph, value: str) -> str:
        return self._emit(graph, "ReduceMean", self._emit(graph, "Mul", value, value), keepdims=0)

    # ------------------------------------------------------------------------ loop

    def _loop(self) -> tuple[str, str]:
        """The last state, and the states of all turns."""
        states = ["h", "c"] if self.kind == "lstm" else ["h"]
        rows = self._emit(self.outer, "Transpose", "x", perm=[1, 0, 2])
        sizes = self._emit(self.outer, "Shape", rows)
        time = self._pick(self.outer, sizes, 0)
        counted = self._one_of("counted turns", "a counter is carried") == "counted turns"
        self.backward = self._one_of("forward", "backward") == "backward"
        start = self._zeros(sizes)
        turn, going = self._name("turn"), self._name("going")
        formal = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        ]
        counter = turn if counted else self._name("counter")
        heads = [time if counted else "", ""]
        carried = [start] * len(states)
        if not counted:
            heads = ["", self._emit(self.outer, "Less", self._array(self.outer, np.int64(0)), time)]
            carried = [self._array(self.outer, np.int64(0)), *carried]
            formal.append(helper.make_tensor_value_info(counter, TensorProto.INT64, []))
        olds = [self._name(s) for s in states]
        formal += [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in olds]
        one = self._held(np.int64(1))
        following = self._emit(self.inner, "Add", counter, one)
        go_on = self._emit(self.inner, *(("Identity", going) if counted
                                         else ("Less", following, time)))  # fmt: skip
        news = self._states(self._row(rows, counter, time, one), counter, olds)
        kept = self._emit(self.inner, "Identity", news[0])
        returned = [go_on, *([] if counted else [following]), *news, kept]
        body = helper.make_graph(
            self.inner.nodes, self._name("body"), formal,
            [onnx.ValueInfoProto(name=name) for name in returned], self.inner.initializers,
        )  # fmt: skip
        results = [self._name("result") for _ in returned[1:]]
        self.outer.nodes.append(
            helper.make_node("Loop", [*heads, *carried], results, name="loop", body=body)
        )
        return results[0 if counted else 1], results[-1]

    def _pick(self, graph: _Graph, sizes: str, axis: int) -> str:
        return self._emit(graph, "Gather", sizes, self._array(graph, np.int64(axis)), axis=0)

    def _zeros(self, sizes: str) -> str:
        """The state before the first turn, of the size of the batch."""
        bounds = [self._array(self.outer, np.asarray([n])) for n in (1, 2)]
        batch = self._emit(self.outer, "Slice", sizes, *bounds)
        units = self._array(self.outer, np.asarray([self.units]))
        shape = self._emit(self.outer, "Concat", batch, units, axis=0)
        if self._one_of("Expand", "ConstantOfShape") == "Expand":
            return self._emit(self.outer, "Expand", self._array(self.outer, np.float32(0)), shape)
        return self._emit(self.outer, "ConstantOfShape", shape)

    def _row(self, rows: str, counter: str, time: str, one: str) -> str:
        """What a turn reads, from the front or from the end."""
        if self.backward:
            left = self._emit(self.inner, "Sub", time, counter)
            counter = self._emit(self.inner, "Sub", left, one)
        return self._emit(self.inner, "Gather", rows, counter, axis=0)

    # ------------------------------------------------------------------------ cell

    def _states(self, row: str, counter: str, olds: list[str]) -> list[str]:
        """The states after a turn; those of a sequence that has ended stand still."""
        news = {"simple": self._simple, "gru": self._gru, "lstm": self._lstm}[self.kind](row, olds)
        if self._one_of("lengths", "full time") == "full time":
            return news
        going = self._emit(self.inner, "Less", counter, "length")
        going = self._emit(self.inner, "Unsqueeze", going, self._held(np.asarray([1])))
        return [
            self._emit(self.inner, "Where", going, new, old)
            for new, old in zip(news, olds, strict=True)
        ]

    def _product(self, value: str, size: int, *, gates: int) -> str:
        """`value · w + b`, for all gates."""
        made = self._emit(self.inner, "MatMul", value, self._weight(size, gates * self.units))
        return self._emit(self.inner, "Add", made, self._weight(gates * self.units))

    def _gates(self, value: str) -> list[str]:
        """The parts of `[batch, gates · units]`."""
        count, units = GATES[self.kind], self.units
        if self._one_of("Split", "Slice") == "Split":
            names = [self._name() for _ in range(count)]
            sizes = self._held(np.asarray([units] * count))
            self.inner.nodes.append(
                helper.make_node("Split", [value, sizes], names, name=names[0], axis=1)
            )
            return names
        return [
            self._emit(
                self.inner, "Slice", value,
                *(self._held(np.asarray([n])) for n in (i * units, (i + 1) * units, 1)),
            )
            for i in range(count)
        ]  # fmt: skip

    def _simple(self, row: str, olds: list[str]) -> list[str]:
        entered = self._product(row, self.features, gates=1)
        kept = self._product(olds[0], self.units, gates=1)
        return [self._emit(self.inner, "Tanh", self._emit(self.inner, "Add", entered, kept))]

    def _gru(self, row: str, olds: list[str]) -> list[str]:
        """Keras's cell with `reset_after`."""
        entered = self._gates(self._product(row, self.features, gates=3))
        kept = self._gates(self._product(olds[0], self.units, gates=3))
        z, r = (
            self._emit(self.inner, "Sigmoid", self._emit(self.inner, "Add", a, b))
            for a, b in zip(entered[:2], kept[:2], strict=True)
        )
        reset = self._emit(self.inner, "Mul", r, kept[2])
        n = self._emit(self.inner, "Tanh", self._emit(self.inner, "Add", entered[2], reset))
        rest = self._emit(self.inner, "Sub", self._held(np.float32(1)), z)
        return [
            self._emit(
                self.inner, "Add",
                self._emit(self.inner, "Mul", z, olds[0]), self._emit(self.inner, "Mul", rest, n),
            )
        ]  # fmt: skip

    def _lstm(self, row: str, olds: list[str]) -> list[str]:
        entered = self._product(row, self.features, gates=4)
        kept = self._product(olds[0], self.units, gates=4)
        i, f, g, o = self._gates(self._emit(self.inner, "Add", entered, kept))
        i, f, o = (self._emit(self.inner, "Sigmoid", gate) for gate in (i, f, o))
        c = self._emit(
            self.inner, "Add",
            self._emit(self.inner, "Mul", f, olds[1]),
            self._emit(self.inner, "Mul", i, self._emit(self.inner, "Tanh", g)),
        )  # fmt: skip
        return [self._emit(self.inner, "Mul", o, self._emit(self.inner, "Tanh", c)), c]
