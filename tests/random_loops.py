"""Random models with control flow: what bodies capture, hold themselves, nest and carry.

Every value is a float matrix of one shape, kept small by `Tanh`, or a sequence of such.  Inputs of
bodies are typed or not, as the draw has it: ONNX demands neither.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (2, 3)
DEEPEST = 2
UNARY = ("Tanh", "Sigmoid", "Sin", "Softplus")
BINARY = ("Add", "Mul", "Sub")


@dataclass
class Scope:
    """A graph under construction: what it holds, and the matrices that its nodes may read."""

    readable: list[str]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)


class Draw:
    """Draws one model. `used` are the features that it has, for what a sweep covers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.numbers = np.random.default_rng(seed)
        self.count = 0
        self.used: set[str] = set()

    def model(self) -> onnx.ModelProto:
        """`loss = mean(…)` of an input, weights, and at least one node with a body."""
        scope = Scope(["x", "w"])
        for _ in range(self.random.randint(1, 2)):
            self._control(scope, 0)
            self._plain(scope)
        total = self._emit(scope, "Sum", scope.readable[-3:])
        scope.nodes.append(
            helper.make_node("ReduceMean", [total], ["loss"], name="loss_node", keepdims=0)
        )
        weight = self._matrix("w")
        graph = helper.make_graph(
            scope.nodes, "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
            [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])],
            [weight, *scope.initializers],
        )  # fmt: skip
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])

    def feeds(self) -> dict[str, np.ndarray]:
        """An array for the input of the model."""
        return {"x": np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)}

    # ---------------------------------------------------------------------- pieces

    def _name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def _matrix(self, name: str) -> onnx.TensorProto:
        return numpy_helper.from_array(
            (self.numbers.standard_normal(SHAPE) / 2).astype(np.float32), name
        )

    def _emit(self, scope: Scope, op: str, inputs: list[str], **attributes: object) -> str:
        name = self._name("v")
        scope.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def _integers(self, scope: Scope, values: list[int] | int) -> str:
        """Integers as an initializer of the graph, or of a Constant in it."""
        array = np.asarray(values, dtype=np.int64)
        if self.random.random() < 0.5:
            self.used.add("constants in bodies")
            return self._emit(scope, "Constant", [], value=numpy_helper.from_array(array))
        self.used.add("sizes as initializers of bodies")
        scope.initializers.append(numpy_helper.from_array(array, self._name("c")))
        return scope.initializers[-1].name

    def _read(self, scope: Scope) -> str:
        """A matrix to read: one that is there, or a new weight of the graph's own."""
        if self.random.random() < 0.25:
            self.used.add("weights as initializers of bodies")
            scope.initializers.append(self._matrix(self._name("k")))
            scope.readable.append(scope.initializers[-1].name)
            return scope.readable[-1]
        return self.random.choice(scope.readable)

    def _plain(self, scope: Scope) -> str:
        """A few nodes; the last is tame."""
        for _ in range(self.random.randint(1, 3)):
            kind = self.random.random()
            if kind < 0.4:
                made = self._emit(scope, self.random.choice(UNARY), [self._read(scope)])
            elif kind < 0.8:
                pair = [self._read(scope), self._read(scope)]
                made = self._emit(scope, self.random.choice(BINARY), pair)
            else:
                made = self._columns(scope, self._read(scope))
            scope.readable.append(made)
        scope.readable.append(self._emit(scope, "Tanh", [scope.readable[-1]]))
        return scope.readable[-1]

    def _columns(self, scope: Scope, value: str) -> str:
        """Columns in another order, by Slice, Split or Gather with sizes of the graph's own."""
        kind = self.random.choice(("Slice", "Split", "Gather"))
        if kind == "Slice":
            bounds = [self._integers(scope, [n]) for n in (2, -4, 1, -1)]
            return self._emit(scope, "Slice", [value, *bounds])
        if kind == "Gather":
            return self._emit(scope, "Gather", [value, self._integers(scope, [1, 0, 1])], axis=1)
        sizes = self._integers(scope, [1, 2])
        parts = [self._name("v"), self._name("v")]
        scope.nodes.append(helper.make_node("Split", [value, sizes], parts, name=parts[0], axis=1))
        return self._emit(scope, "Concat", parts[::-1], axis=1)

    def _control(self, scope: Scope, depth: int, *, turn: str | None = None) -> str:
        kinds = ["Loop", "Scan", "Loop of a sequence", "SequenceMap"] + (["If"] if turn else [])
        kind = self.random.choice(kinds)
        self.used.add(f"{kind} at depth {depth}")
        made = {
            "If": lambda: self._if(scope, depth, turn or ""),
            "Loop": lambda: self._loop(scope, depth),
            "Loop of a sequence": lambda: self._collect(scope, depth),
            "Scan": lambda: self._scan(scope, depth),
            "SequenceMap": lambda: self._map(scope, depth),
        }[kind]()
        scope.readable.append(made)
        return made

    def _inside(self, scope: Scope, depth: int, given: list[str], turn: str | None = None) -> Scope:
        """A body that reads what it is given and what is outside."""
        inner = Scope([*scope.readable[-4:], *given])
        self._plain(inner)
        if depth < DEEPEST and self.random.random() < 0.6:
            self._control(inner, depth + 1, turn=turn)
            self._plain(inner)
        return inner

    def _formal(self, name: str, kind: str = "matrix") -> onnx.ValueInfoProto:
        """An input of a body, perhaps without a type, which is that of what flows in."""
        if self.random.random() < 0.5:
            self.used.add(f"untyped {kind}")
            return onnx.ValueInfoProto(name=name)
        if kind == "sequence":
            return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    def _graph(
        self, scope: Scope, inputs: list[onnx.ValueInfoProto], outputs: list[str]
    ) -> onnx.GraphProto:
        held = {tensor.name for tensor in scope.initializers}
        results = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)
            if name in held
            else onnx.ValueInfoProto(name=name)
            for name in outputs
        ]
        return helper.make_graph(
            scope.nodes, self._name("body"), inputs, results, scope.initializers
        )

    # ------------------------------------------------------------------- operators

    def _turns(self, scope: Scope) -> tuple[list[str], list[onnx.ValueInfoProto], str, str]:
        """Count and condition of a Loop, the two inputs of its body, and the names of these."""
        turn, going = self._name("turn"), self._name("going")
        formal = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        ]
        return [self._integers(scope, self.random.randint(1, 3)), ""], formal, turn, going

    def _loop(self, scope: Scope, depth: int) -> str:
        heads, formal, turn, going = self._turns(scope)
        state, result, row = self._name("state"), self._name("last"), self._name("rows")
        inner = self._inside(scope, depth, [state], turn)
        go_on = self._emit(inner, "Identity", [going])
        new = self._emit(inner, "Tanh", [self._emit(inner, "Add", [state, inner.readable[-1]])])
        kept = self._emit(inner, "Mul", [new, self._read(inner)])
        body = self._graph(inner, [*formal, self._formal(state)], [go_on, new, kept])
        scope.nodes.append(
            helper.make_node(
                "Loop", [*heads, self._read(scope)], [result, row], name=result, body=body
            )
        )
        axes = self._integers(scope, [0])
        rows = self._emit(scope, "ReduceMean", [row, axes], keepdims=0)
        return self._emit(scope, "Add", [result, rows])

    def _collect(self, scope: Scope, depth: int) -> str:
        """A Loop that puts what each turn computes into a sequence, joined behind it."""
        heads, formal, turn, going = self._turns(scope)
        state, result = self._name("sequence"), self._name("collected")
        start = self._emit(scope, "SequenceEmpty", [])
        inner = self._inside(scope, depth, [], turn)
        go_on = self._emit(inner, "Identity", [going])
        new = self._emit(inner, "SequenceInsert", [state, inner.readable[-1]])
        body = self._graph(inner, [*formal, self._formal(state, "sequence")], [go_on, new])
        scope.nodes.append(
            helper.make_node("Loop", [*heads, start], [result], name=result, body=body)
        )
        return self._mean(scope, result)

    def _scan(self, scope: Scope, depth: int) -> str:
        count = self.random.randint(1, 3)
        state, row, last, rows = (self._name(n) for n in ("state", "row", "last", "rows"))
        shape = self._integers(scope, [count, *SHAPE])
        array = self._emit(scope, "Expand", [self._read(scope), shape])
        inner = self._inside(scope, depth, [state, row])
        new = self._emit(inner, "Tanh", [self._emit(inner, "Add", [state, inner.readable[-1]])])
        kept = self._emit(inner, "Mul", [new, self._read(inner)])
        body = self._graph(inner, [self._formal(state), self._formal(row)], [new, kept])
        scope.nodes.append(
            helper.make_node(
                "Scan",
                [self._read(scope), array],
                [last, rows],
                name=last,
                body=body,
                num_scan_inputs=1,
            )
        )
        axes = self._integers(scope, [0])
        return self._emit(
            scope, "Add", [last, self._emit(scope, "ReduceMean", [rows, axes], keepdims=0)]
        )

    def _map(self, scope: Scope, depth: int) -> str:
        """A SequenceMap; its sequence comes out of a Loop or is of known elements."""
        element, result = self._name("element"), self._name("mapped")
        elements = [self._read(scope) for _ in range(self.random.randint(1, 3))]
        sequence = self._emit(scope, "SequenceConstruct", elements)
        inner = self._inside(scope, depth, [element])
        body = self._graph(
            inner, [self._formal(element)], [self._emit(inner, "Identity", [inner.readable[-1]])]
        )
        scope.nodes.append(
            helper.make_node("SequenceMap", [sequence], [result], name=result, body=body)
        )
        return self._mean(scope, result)

    def _mean(self, scope: Scope, sequence: str) -> str:
        joined = self._emit(scope, "ConcatFromSequence", [sequence], axis=0, new_axis=1)
        return self._emit(scope, "ReduceMean", [joined, self._integers(scope, [0])], keepdims=0)

    def _if(self, scope: Scope, depth: int, turn: str) -> str:
        condition = self._emit(
            scope, "Less", [turn, self._integers(scope, self.random.randint(0, 2))]
        )
        branches = {}
        for name in ("then_branch", "else_branch"):
            inner = self._inside(scope, depth, [], turn)
            if self.random.random() < 0.3:
                self.used.add("a branch that returns an initializer")
                inner.initializers.append(self._matrix(self._name("k")))
                made = inner.initializers[-1].name
            else:
                made = self._emit(inner, "Identity", [inner.readable[-1]])
            branches[name] = self._graph(inner, [], [made])
        return self._emit(scope, "If", [condition], **branches)
