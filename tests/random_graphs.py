"""Random differentiable graphs: valid shapes, tame numbers, no element near a kink.

`recipes()` draws nodes one after the other and computes each as it is drawn, so that an operator
is only put where its inputs are in its domain.  A recipe is plain data; `assemble` makes a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import strategies as st

from gradtool.emit.builder import Builder
from gradtool.graph.attributes import arguments, attribute
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import call

OPSET = 23
KINK = 2e-3  # no element is nearer to a point where a derivative jumps
LARGEST = 6.0
MOST_ELEMENTS = 240
Array = np.ndarray[Any, Any]
Draw = Callable[..., Any]


@dataclass(frozen=True)
class Node:
    """One node: names of inputs (empty: absent) and outputs."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """A graph: leaves that are differentiated, constants, nodes; `loss` is its only output."""

    inputs: dict[str, Array]
    weights: dict[str, Array]
    constants: dict[str, Array]
    nodes: tuple[Node, ...]
    loss: str = "loss"

    @property
    def leaves(self) -> dict[str, Array]:
        return self.inputs | self.weights

    def __repr__(self) -> str:
        rows = [f"{n}: {a.shape}" for n, a in self.leaves.items()]
        rows += [f"{n} = {a.tolist()}" for n, a in self.constants.items() if a.dtype.kind == "i"]
        rows += [
            f"{', '.join(n.outputs)} = {n.op}({', '.join(n.inputs)}) {n.attributes or ''}"
            for n in self.nodes
        ]
        return "\n".join(rows)

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:  # noqa: FBT001
        printer.text(f"\n{self!r}\n")


def assemble(recipe: Recipe, dtype: Any = np.float64) -> ir.Model:
    """The model of a recipe, its floats as `dtype`."""
    graph = ir.Graph([], [], nodes=[], name="random", opset_imports={"": OPSET})
    model = ir.Model(graph, ir_version=11)
    op = Builder(model, stage="forward")
    values: dict[str, ir.Value | None] = {"": None}
    for name, array in recipe.inputs.items():
        values[name] = _value(name, array.astype(dtype))
        graph.inputs.append(values[name])
    for name, array in (recipe.weights | recipe.constants).items():
        array = array.astype(dtype) if array.dtype.kind == "f" else array  # noqa: PLW2901
        values[name] = _value(name, array)
        values[name].const_value = ir.Tensor(array, name=name)
        graph.register_initializer(values[name])
    for given in recipe.nodes:
        values |= {v.name: v for v in _place(op, values, given).outputs}
    graph.outputs.append(values[recipe.loss])
    return model


def _value(name: str, array: Array) -> ir.Value:
    dtype = ir.DataType.from_numpy(array.dtype)
    return ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(dtype))


def _place(op: Builder, values: dict[str, ir.Value | None], given: Node) -> ir.Node:
    attributes = [attribute(k, v) for k, v in given.attributes.items()]
    inputs = [values[name] for name in given.inputs]
    node = ir.Node(
        "",
        given.op,
        inputs,
        attributes,
        num_outputs=len(given.outputs),
        name=f"n_{given.outputs[0]}",
    )
    for value, name in zip(node.outputs, given.outputs, strict=True):
        value.name = name
    op.graph.append(node)
    op.infer(node)
    return node


class Draft:
    """A graph that grows: every value so far, as an array and as a value of a model."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="numbers"))
        self.inputs: dict[str, Array] = {}
        self.weights: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.arrays: dict[str, Array] = {}
        self.floats: list[str] = []  # what may be read by further nodes
        graph = ir.Graph([], [], nodes=[], name="draft", opset_imports={"": OPSET})
        self.op = Builder(ir.Model(graph, ir_version=11), stage="forward")
        self.values: dict[str, ir.Value | None] = {"": None}

    # ------------------------------------------------------------------ choices

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.draw(st.integers(0, len(options) - 1))]

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def draw_int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def any_float(self) -> str:
        """A value drawn so far; late ones are likelier."""
        back = min(self.draw(st.integers(0, len(self.floats) - 1)) for _ in range(2))
        return self.floats[-1 - back]

    # ------------------------------------------------------------------- values

    def leaf(self, kind: dict[str, Array], shape: Sequence[int], low: float, high: float) -> str:
        name = f"{'x' if kind is self.inputs else 'w'}{len(kind)}"
        kind[name] = self.rng.uniform(low, high, shape)
        self._know(name, kind[name])
        return name

    def weight(self, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        return self.leaf(self.weights, shape, low, high)

    def constant(self, array: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        self._know(name, self.constants[name])
        return name

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.asarray(values, np.int64))

    def _know(self, name: str, array: Array) -> None:
        value = _value(name, array)
        value.const_value = ir.Tensor(array, name=name)  # sizes are read from constants
        self.values[name], self.arrays[name] = value, array

    def emit(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node and compute it. Returns the name of its first output."""
        index = len(self.nodes)
        names = (f"v{index}",) if outputs == 1 else tuple(f"v{index}_{i}" for i in range(outputs))
        given = Node(op, inputs, names, attributes)
        node = _place(self.op, self.values, given)
        found = registry.find("", op, OPSET)
        assert found is not None, op
        specs = [Spec(tuple(v.shape.numpy()), v.dtype.numpy()) for v in node.outputs]
        arrays = [self.arrays.get(name) for name in inputs]
        results = call(np, found, arrays, specs, arguments(node))
        self.nodes.append(given)
        for value, name, result in zip(node.outputs, names, results, strict=True):
            self.values[name], self.arrays[name] = value, np.array(result)
            if result.dtype.kind == "f":
                self.floats.append(name)
        return names[0]

    def tame(self) -> None:
        """Scale what has become large, so that it can't run away."""
        for name in list(self.floats):
            if not self.read(name):
                size = float(np.abs(self.arrays[name]).max(initial=0.0))
                assert np.isfinite(size), f"{name} is not finite\n{self.recipe()!r}"
                if size > LARGEST:
                    self.emit("Mul", name, self.constant(np.float64(2.0 / size)))

    def read(self, name: str) -> bool:
        return any(name in node.inputs for node in self.nodes)

    def finish(self) -> Recipe:
        """Weigh every value that nobody reads, and sum to a loss."""
        terms = []
        for name in [n for n in self.floats if not self.read(n)]:
            weighed = self.emit(
                "Mul", name, self.constant(self.rng.uniform(0.5, 1.5, self.arrays[name].shape))
            )
            terms.append(self.emit("ReduceSum", weighed, keepdims=0))
        self.emit("Sum", *terms)
        last = self.nodes.pop()
        self.nodes.append(Node("Sum", last.inputs, ("loss",)))
        return self.recipe()

    def recipe(self) -> Recipe:
        weights = {n: a for n, a in self.weights.items() if self.read(n)}
        return Recipe(self.inputs, weights, self.constants, tuple(self.nodes))


@st.composite
def recipes(draw: Draw, least: int = 5, most: int = 40) -> Recipe:
    """A graph of about `least` to `most` nodes, plus what sums its open ends to a loss."""
    from random_operators import MAKERS

    draft = Draft(draw)
    for _ in range(draw(st.integers(1, 3), label="inputs")):
        rank = draft.choose([3, 2, 4, 1, 0, 4])
        shape = [draw(st.integers(1, (9, 9, 6, 4, 3)[rank])) for _ in range(rank)]
        draft.floats.append(draft.leaf(draft.inputs, shape, -2.0, 2.0))
    wanted = draw(st.integers(least, most), label="nodes")
    order = draft.rng.permutation(len(MAKERS))  # draws prefer what comes first
    while len(draft.nodes) < wanted:
        name = draft.any_float()
        array = draft.arrays[name]
        fitting = [MAKERS[i][0] for i in order if MAKERS[i][1](array)]
        draft.choose(fitting)(draft, name)
        draft.tame()
    return draft.finish()
