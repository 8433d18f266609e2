"""Constant folding by our kernels while shapes are inferred.

The provider of the kernels plays the role `evaluate`.

A result becomes the `const_value` of its value: sizes that depend on it are known, and programs
hold it as a constant. The graph stays as it is.

Never computed: dependents of trainable values (initializers of floats with more than one element,
values with a gradient or a next value), random draws, and nodes with subgraphs (of an If whose
condition is known, the branch that is taken counts).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.branches import taken
from gradtool.graph.injection import provided
from gradtool.graph.limits import MOST_ELEMENTS
from gradtool.graph.metadata import ELEMENTS
from gradtool.graph.predicates import NO_DATA, is_integer, is_tensor
from gradtool.graph.randomness import may_draw
from gradtool.graph.reads import reads
from gradtool.graph.specs import Spec, least_of
from gradtool.graph.specs import spec_of as planned_spec
from gradtool.graph.tensors import array
from gradtool.graph.training_info import TrainingInfo
from gradtool.shapes.memo import Memo, call_of

# What is computed of one graph may read and write so many bytes, which bounds time and memory.
FOLDED_BYTES = 2**27
# One operator gets this part of them.
SHARE = 32
# So many integers of an input are compared with those of nodes before.
_FEW = 8
# Inference itself knows best the results of these.
KNOWN = NO_DATA | {"Constant"}

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Evaluated:
    """The results of a kernel on constants, None if it failed, and the bytes counted for them."""

    cost: int
    results: Sequence[Array | None] | None


@dataclass(frozen=True)
class _Result:
    """The inferred facts of the one output of a node, and the bytes counted for them."""

    kind: ir.TypeProtocol
    shape: ir.Shape
    sizes: list[Any] | None  # as inference keeps them
    note: str | None
    tensor: ir.TensorProtocol | None
    cost: int

    def give(self, context: Any, value: ir.Value) -> None:
        """Give a value the same facts."""
        value.type, value.shape = self.kind, self.shape
        if self.sizes is not None:
            context._symbolic_values[value] = self.sizes  # noqa: SLF001 - as `_unlearn`
        if self.note is not None:
            value.metadata_props[ELEMENTS] = self.note
        if self.tensor is not None:
            value.const_value = ir.Tensor(
                self.tensor.numpy(), dtype=self.tensor.dtype, name=value.name
            )


class Folding:
    """The folding state of one graph, and the bytes left to spend.

    `hidden` are initializers whose tensors shape inference is not shown.
    """

    def __init__(
        self, model: ir.Model, hidden: Mapping[ir.Value, ir.TensorProtocol] | None = None
    ) -> None:
        self.left = FOLDED_BYTES
        self._large: dict[ir.Value, ir.TensorProtocol] = dict(hidden or {})
        self._never: set[ir.Value] = set()
        self._memos: dict[Any, Memo] = {}
        self._results_of: dict[Hashable, _Result] = {}
        self._graph = model.graph
        self._trained = TrainingInfo.of(model).changing

    @cached_property
    def _owners(self) -> dict[ir.Graph, ir.Node]:
        """The owners of subgraphs."""
        nodes = walk.nodes(self._graph)
        return {graph: node for node in nodes for graph in walk.subgraphs(node)}

    def memo(self, context: Any) -> Memo:
        """The memo of the nodes inferred in a context."""
        if context not in self._memos:
            self._memos[context] = Memo(context)
        return self._memos[context]

    def never(self, values: Iterable[ir.Value]) -> None:
        """Compute nothing from these values: they change from step to step."""
        self._never.update(values)

    def changes(self, value: ir.Value) -> bool:
        """Whether a value is another one in each step: its tensor is how it begins."""
        return value in self._never or (value.is_initializer() and value.name in self._trained)

    def never_runs(self, node: ir.Node) -> bool:
        """Whether a node is in a dead branch."""
        graph = node.graph
        while graph in self._owners:
            owner = self._owners[graph]
            branch = taken(owner)
            if branch is not None and branch is not graph:
                return True
            graph = owner.graph
        return False

    def is_known(self, node: ir.Node) -> bool:
        """Whether all operands of a node are known."""
        return not walk.subgraphs(node) and all(
            value is None or _lends(node, slot) is not None or self._tensor(value) is not None
            for slot, value in enumerate(node.inputs)
        )

    def repeat(self, context: Any, node: ir.Node, by: Callable[[], object]) -> None:
        """Give the output of a node of known inputs the result of a like node, else run `by`."""
        key, value = self._likeness(context, node), node.outputs[0]
        known = None if key is None else self._results_of.get(key)
        if known is not None:
            self.left -= known.cost
            known.give(context, value)
            return
        before = self.left
        by()
        if key is None or value.type is None or value.shape is None or value in self._large:
            return
        self._results_of[key] = _Result(
            value.type, ir.Shape(value.shape, frozen=True),
            context._symbolic_values.get(value), value.metadata_props.get(ELEMENTS),  # noqa: SLF001
            value.const_value, before - self.left,
        )  # fmt: skip

    def _likeness(self, context: Any, node: ir.Node) -> Hashable | None:
        """All dependences of the output of a node of few integers; None of other nodes."""
        call = call_of(node) if len(node.outputs) == 1 and not node.domain else None
        if call is None or not node.inputs or may_draw(node) or self.left <= FOLDED_BYTES // SHARE:
            return None
        looks: list[Hashable] = []
        for slot, value in enumerate(node.inputs):
            if value is not None and _lends(node, slot) == "shape":
                looks.append((value.dtype, None if value.shape is None else value.shape.dims))
                continue
            tensor = None if value is None else self._tensor(value)
            if value is None or tensor is None:
                return None
            if not is_integer(value) or tensor.size > _FEW or not self._is_fixed(value, tensor):
                return None
            sizes = tuple(context.get_symbolic_value(value) or ())
            looks.append((value.dtype, tuple(tensor.shape), array(tensor).tobytes(), sizes))
        return context, call, tuple(looks)

    def fold(self, context: Any, node: ir.Node) -> None:
        """Compute the outputs of a node of known inputs, if permitted.

        Constants of inference itself are replaced: it reckons with integers alone.
        """
        wanted = [value for value in node.outputs if value.name]
        if node.op_type in KNOWN and all(value.const_value is not None for value in wanted):
            return
        for value in wanted:
            if value.const_value is not None and value.const_value.dtype.is_floating_point():
                _unlearn(context, value)
        for value, made in zip(node.outputs, self._results(context, node), strict=False):
            if value in wanted and made is not None:
                self._learn(context, value, made)

    def _results(self, context: Any, node: ir.Node) -> Sequence[Array | None]:
        """The known outputs; empty if there are none."""
        if walk.subgraphs(node):
            return self._of_branch(taken(node))
        inputs = self._operands(node)
        if inputs is None or may_draw(node):
            return ()
        return self._computed(node, context.get_opset_version(node.domain), inputs) or ()

    def _of_branch(self, branch: ir.Graph | None) -> list[Array | None]:
        """The known results of the branch taken."""
        tensors = [self._tensor(value) for value in branch.outputs] if branch else []
        return [
            None if t is None or not self._is_fixed(v, t) else array(t)
            for v, t in zip(branch.outputs if branch else (), tensors, strict=True)
        ]

    def _tensor(self, value: ir.Value) -> ir.TensorProtocol | None:
        known = self._large.get(value)
        return ir.convenience.get_const_tensor(value) if known is None else known

    def _operands(self, node: ir.Node) -> list[Array | None] | None:
        """The inputs as arrays, None for absent ones; None if not all are known."""
        arrays: list[Array | None] = []
        size = 0
        for slot, value in enumerate(node.inputs):
            if value is None:
                arrays.append(None)
                continue
            blank = _blank(node, slot, value)
            tensor = self._tensor(value) if blank is None else None
            if tensor is not None and self._is_fixed(value, tensor):
                size += tensor.nbytes
                blank = array(tensor) if size <= self._most() else None
            if blank is None:
                return None
            arrays.append(blank)
        return arrays

    def _is_fixed(self, value: ir.Value, tensor: ir.TensorProtocol) -> bool:
        """Whether a value is the same in every step, whatever is trained."""
        if self.changes(value) or getattr(tensor, "absent", False):
            return False
        if not value.is_initializer():
            return True
        small = tensor.size <= 1 and not value.is_graph_input()
        return small or not tensor.dtype.is_floating_point()

    def _most(self) -> int:
        return min(self.left, FOLDED_BYTES // SHARE)

    def _computed(
        self, node: ir.Node, version: int, inputs: Sequence[Array | None]
    ) -> Sequence[Array | None] | None:
        """The outputs, None if no kernel can tell them or they take too much."""
        out = [planned_spec(value) if value.name else None for value in node.outputs]
        tensors = [is_tensor(value) for value in node.outputs if value.name]
        texts = any(value.dtype == ir.DataType.STRING for value in node.outputs)
        if not all(tensors) or texts:
            return None
        least = [
            None if not value.name else spec or least_of(value) or Spec((0,), np.dtype(np.uint8))
            for value, spec in zip(node.outputs, out, strict=True)
        ]
        found: Evaluated | None = provided("evaluate")(
            node, version, inputs, out, least, self._most()
        )
        if found is None:
            return None
        self.left -= found.cost
        made = found.results
        return made if made is not None and all(map(_agree, made, out)) else None

    def _learn(self, context: Any, value: ir.Value, array: Array) -> None:
        dtype = value.dtype or ir.DataType.from_numpy(array.dtype)
        array = np.ascontiguousarray(array, dtype.numpy()).reshape(array.shape)
        if array.nbytes > FOLDED_BYTES // SHARE:
            return
        _unlearn(context, value)
        context.set_shape_and_dtype(value, ir.Shape(array.shape), dtype)
        tensor = ir.Tensor(array, dtype=dtype, name=value.name)
        if array.size > MOST_ELEMENTS:
            self._large[value] = tensor
        else:
            value.const_value = tensor


def _blank(node: ir.Node, slot: int, value: ir.Value) -> Array | None:
    """A stand-in array, without storage, for an input read for its shape or type alone."""
    lent = _lends(node, slot)
    spec = planned_spec(value) if lent == "shape" else None
    if lent == "type" and value.dtype not in (None, ir.DataType.STRING):
        spec = Spec((), np.dtype(value.dtype.numpy()))
    return None if spec is None else np.broadcast_to(np.zeros((), spec.dtype), spec.shape)


def _lends(node: ir.Node, slot: int) -> str | None:
    """The use of an input whose content is not read: its shape or its type."""
    if node.domain:
        return None
    if node.op_type in NO_DATA:
        return "shape"
    return "type" if node.op_type == "CastLike" and slot == 1 else None


def _unlearn(context: Any, value: ir.Value) -> None:
    """Forget the contents inferred of a value."""
    context._symbolic_values.pop(value, None)  # noqa: SLF001 - it is read before the tensor is
    value.metadata_props.pop(ELEMENTS, None)
    value.const_value = None


def _agree(array: Array | None, spec: Spec | None) -> bool:
    return array is None or spec is None or tuple(array.shape) == spec.shape


_ACTIVE: ContextVar[Folding | None] = ContextVar("gradtool.folding", default=None)


@contextmanager
def folded(folding: Folding) -> Iterator[None]:
    """Fold every node whose shapes are inferred within."""
    token = _ACTIVE.set(folding)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def active() -> Folding | None:
    """The folding of the nodes whose shapes are inferred now."""
    return _ACTIVE.get()


def forget(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Take all values computed from these for unknown again."""
    stale = set(values)
    if not stale:
        return
    for node in graph.all_nodes():
        lent = {v for slot, v in enumerate(node.inputs) if _lends(node, slot) is not None}
        if any(value in stale and value not in lent for value in reads(node)):
            stale.update(node.outputs)
            for value in node.outputs:
                value.const_value = None
