"""Reverse-mode differentiation of a graph: the driver that calls one rule per node.

Source: the walk is that of NNVM's gradient pass and of HIPS/autograd (gradients are popped as they
are used); unlike NNVM, a reachable value without any gradient gets explicit zeros, and all
operators without a rule are named at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, NotDifferentiable, UnsupportedGradient
from gradtool.graph import deciding
from gradtool.graph.composites import DOMAIN
from gradtool.graph.devices import place_gradient
from gradtool.graph.error_context import blamed
from gradtool.graph.families import full_name
from gradtool.graph.names import label
from gradtool.graph.predicates import has_sizes, is_float, may_be_float
from gradtool.graph.reads import captured, dependent, needed, reads
from gradtool.graph.typed import as_node, as_tensor
from gradtool.ops import gradients
from gradtool.ops.composites.calls import replace
from gradtool.ops.composites.emission_cache import Stamps

Accumulate = Literal["chain", "sum"]


@dataclass(frozen=True)
class Offender:
    """An operator that stands between the loss and a value asked for, without a gradient."""

    op: str
    nodes: int
    first_node: str
    what_to_do: str


class Offenders(NotDifferentiable):
    """Operators without a gradient; all of them at once."""

    def __init__(self, rows: Sequence[Offender]) -> None:
        self.rows = tuple(rows)
        first = rows[0]
        others = len(rows) - 1
        more = f" and {others} more operator{'s' if others > 1 else ''}" if others else ""
        super().__init__(
            f"no gradient for {first.op} ({first.first_node!r}){more}: {first.what_to_do}"
        )


@dataclass(frozen=True)
class Backward:
    """Result of differentiation: gradients by value, and the ones zero by definition.

    `inner` are the gradients of results of nodes, as they flow into the rules of these.
    """

    gradients: Mapping[ir.Value, ir.Value]
    zeros: tuple[ir.Value, ...]
    rules: tuple[str, ...]
    inner: Mapping[ir.Value, ir.Value]


def differentiate(
    op: Builder,
    cotangents: Mapping[ir.Value, ir.Value],
    wrt: Sequence[ir.Value],
    *,
    cut: frozenset[ir.Value] = frozenset(),
    accumulate: Accumulate = "chain",
) -> Backward:
    """Append to the builder's graph the gradient of `Σ ⟨cotangent, output⟩` by each of `wrt`.

    `cotangents` maps each differentiated output to its gradient (same shape and type).  No gradient
    flows into the values of `cut`.  Composites on the way that have no rule, those of an earlier
    gradient, are replaced by their bodies.

    Raises:
        Offenders: operators on the way have no gradient; all are listed.
    """
    moved = _open_composites(op, wrt, cotangents, cut)
    cotangents = {moved.get(v, v): moved.get(dy, dy) for v, dy in cotangents.items()}
    wrt = [moved.get(v, v) for v in wrt]
    cut = frozenset(moved.get(v, v) for v in cut)
    return _Driver(op, wrt, cotangents, cut, accumulate).run(cotangents, wrt)


def active(
    graph: ir.Graph,
    wrt: Iterable[ir.Value],
    cotangents: Iterable[ir.Value],
    cut: frozenset[ir.Value] = frozenset(),
) -> set[ir.Value]:
    """The values on a path from any of `wrt` to any of `cotangents` other than through `cut`."""
    return dependent(graph, wrt, cut) & needed(graph, cotangents, cut)


def _open_composites(
    op: Builder, wrt: Iterable[ir.Value], cotangents: Iterable[ir.Value], cut: frozenset[ir.Value]
) -> dict[ir.Value, ir.Value]:
    """Replace the composites without a rule; by value that left, the one in its place."""
    calls = [
        node for node in op.graph
        if node.domain == DOMAIN and gradients.find(DOMAIN, node.op_type, 1) is None
    ]  # fmt: skip
    if not calls:
        return {}
    way = active(op.graph, wrt, cotangents, cut)
    calls = [n for n in calls if not way.isdisjoint(reads(n)) and not way.isdisjoint(n.outputs)]
    return replace(op, calls) if calls else {}


class _Driver:
    def __init__(
        self,
        op: Builder,
        wrt: Sequence[ir.Value],
        cotangents: Mapping[ir.Value, ir.Value],
        cut: frozenset[ir.Value],
        accumulate: Accumulate,
    ) -> None:
        self.op = op
        self.stamps = Stamps(op)
        self.nodes = list(op.graph)
        self.active = active(op.graph, wrt, cotangents, cut)
        self.accumulate = accumulate
        self.pending: dict[ir.Value, list[ir.Value]] = {}
        self.met: dict[ir.Value, list[ir.Value]] = {}  # gradients of the node that is visited
        self.blocked: set[ir.Value] = set()
        self.offenders: list[tuple[ir.Node, str]] = []
        self.inner: list[Offender] = []  # found in subgraphs
        self.used: dict[str, None] = {}
        self.inner_gradients: dict[ir.Value, ir.Value] = {}

    def run(self, cotangents: Mapping[ir.Value, ir.Value], wrt: Sequence[ir.Value]) -> Backward:
        """Walk the nodes backward, then fill in zeros for values that no gradient reached."""
        for value, dy in cotangents.items():
            self._add(value, dy)
        wanted = set(wrt)
        found: dict[ir.Value, ir.Value] = {}
        with self.op.arithmetic():
            for node in reversed(self.nodes):
                for value in node.outputs:
                    if value in wanted and value in self.pending:
                        found[value] = self._pop(value)
                        self.pending[value] = [found[value]]
                self._visit(node)
        if self.offenders or self.inner:
            raise Offenders([*_rows(self.offenders), *self.inner])
        if self.blocked:
            unknown = sorted(filter(_is_unknown, self.blocked), key=lambda v: v.name or "")
            raise NotDifferentiable(deciding.of_unknown(unknown))
        with self.op.at(None, stage="backward", source="", prefix="zeros"):
            zeros = [v for v in wrt if v not in found and v not in self.pending]
            for value in wrt:
                if value in zeros:
                    found[value] = self.op.zeros_like(value)
                elif value not in found:
                    found[value] = self._pop(value)
        wanted_ones = {v: found[v] for v in wrt}
        return Backward(wanted_ones, tuple(zeros), tuple(sorted(self.used)), self.inner_gradients)

    def _visit(self, node: ir.Node) -> None:
        """Emit the gradient of a node, on the devices that the node is placed on."""
        start = len(self.op.emitted)
        self.met = {}
        self._differentiate(node)
        if node.device_configurations:
            for emitted in self.op.emitted[start:]:
                place_gradient(emitted, node, self.met)

    def _differentiate(self, node: ir.Node) -> None:
        dys = [self._pop(v) if v in self.pending else None for v in node.outputs]
        flows = zip(node.outputs, dys, strict=True)
        self.inner_gradients.update((v, dy) for v, dy in flows if dy is not None)
        blocked = any(v in self.blocked for v in node.outputs)
        if not blocked and all(dy is None for dy in dys):
            return
        differentiated = [v for v in reads(node) if v in self.active]
        if not differentiated:
            return
        stuck = blocked or any(map(_is_unknown, differentiated))
        entry = gradients.find(node.domain, node.op_type, self._version(node))
        if entry is None or stuck:
            if entry is None:
                self.offenders.append((node, _advice(node)))
            if entry is None or not entry.zero:
                self.blocked.update(v for v in reads(node) if self._may_take(v))
            return
        self.used[entry.name] = None
        hint = node.name or node.op_type
        with self.op.at(None, stage="backward", source=hint, prefix=f"{hint}/grad"):
            before, self.op.active = self.op.active, self.active
            try:
                empty = all(dy is None or _is_empty(dy) for dy in dys)
                with blamed(lambda: label(node), "its gradient"):
                    results = self._nothing(node) if empty else self._results(entry, node, dys)
            except (UnsupportedGradient, Offenders) as error:
                if isinstance(error, Offenders):
                    self.inner += error.rows
                else:
                    self.offenders.append((node, str(error)))
                self.blocked.update(v for v in reads(node) if self._may_take(v))
                return
            finally:
                self.op.active = before
            with blamed(lambda: label(node), "its gradient"):
                self._deliver(node, entry, results)

    def _results(
        self, entry: gradients.Gradient, node: ir.Node, dys: Sequence[ir.Value | None]
    ) -> Sequence[ir.Value | None]:
        """Gradients of the inputs, as emitted by a rule."""

        def by() -> Sequence[ir.Value | None]:
            found = entry.rule(self.op, as_node(node), *dys)
            return (found,) if isinstance(found, ir.Value) or found is None else tuple(found)

        return self.stamps.emit(node, (*node.inputs, *node.outputs, *dys), by)

    def _nothing(self, node: ir.Node) -> list[ir.Value | None]:
        """The gradients through empty results: a sum of no terms."""
        values = (*node.inputs, *captured(node))
        return [self.op.zeros_like(v) if v is not None and self._takes(v) else None for v in values]

    def _deliver(
        self, node: ir.Node, entry: gradients.Gradient, grads: Sequence[ir.Value | None]
    ) -> None:
        """Add the results of a rule to the gradients of the inputs, then of captured values."""
        values = (*node.inputs, *captured(node))
        if any(v is not None and self._takes(v) for v in values[len(grads) :]):
            raise ModelError(
                f"the rule of {entry.name} is wrong at {node.name!r}: "
                f"{len(grads)} gradients for {len(values)} inputs"
            )
        for value, grad in zip(values, grads, strict=False):
            if value is None or grad is None or not self._takes(value):
                continue
            if entry.broadcasts:
                grad = self.op.unbroadcast(as_tensor(grad), as_tensor(value))  # noqa: PLW2901 - summed to its shape
            _check(node, value, grad)
            self._add(value, grad)

    def _takes(self, value: ir.Value) -> bool:
        return value in self.active and is_float(value)

    def _may_take(self, value: ir.Value) -> bool:
        return value in self.active and may_be_float(value)

    def _add(self, value: ir.Value, dy: ir.Value) -> None:
        terms = self.pending.setdefault(value, [])
        if terms and self.accumulate == "chain":
            terms[0] = self.op.plus(terms[0], dy)
        else:
            terms.append(dy)
        self.met.setdefault(value, []).extend((dy, terms[0]))

    def _pop(self, value: ir.Value) -> ir.Value:
        terms = self.pending.pop(value)
        total: ir.Value = terms[0]
        if len(terms) > 1:
            with self.op.at(None, stage="backward", source="", prefix=f"{value.name}/grad"):
                total = self.op.total(terms)
        self.met.setdefault(value, []).extend((*terms, total))
        return total

    def _version(self, node: ir.Node) -> int:
        return self.op.model.graph.opset_imports.get(node.domain, 1)


def _is_unknown(value: ir.Value) -> bool:
    tensor = isinstance(value.type, ir.TensorType)
    return value.dtype is None or (tensor and value.shape is None)


def _is_empty(dy: ir.Value) -> bool:
    """Whether a gradient is known to have no elements."""
    sizes = dy.shape if isinstance(dy.type, ir.TensorType) else None
    return any(isinstance(size, int) and size == 0 for size in sizes or ())


def _check(node: ir.Node, value: ir.Value, grad: ir.Value) -> None:
    """A gradient has the type and the shape of its value; else the rule is wrong."""
    if not isinstance(value.type, ir.TensorType):
        grad.shape = value.shape  # of elements
        return
    if grad.dtype == value.dtype and has_sizes(grad.shape, value.shape):
        return
    same = grad.dtype == value.dtype and len(grad.shape or ()) == len(value.shape or ())
    for g, v in zip(grad.shape or (), value.shape or (), strict=False):
        same = same and not (isinstance(g, int) and isinstance(v, int) and g != v)
    if not same:
        raise ModelError(
            f"the rule of {full_name(node.domain, node.op_type)} is wrong at {node.name!r}: "
            f"gradient {grad.dtype}{grad.shape} for {value.name!r} of {value.dtype}{value.shape}"
        )
    pairs = zip(grad.shape or (), value.shape or (), strict=True)
    grad.shape = ir.Shape(g if isinstance(g, int) else v for g, v in pairs)


def _advice(node: ir.Node) -> str:
    if node.domain == "com.microsoft" and node.op_type.startswith(("DynamicQuantize", "Q")):
        return "it computes on integers; leave it out of op_types_to_quantize when quantising"
    return f"register a rule: gradtool ops --template {full_name(node.domain, node.op_type)}"


def require_types(model: ir.Model) -> None:
    """Refuse a graph whose outputs are unknown because of operators that nobody knows.

    Raises:
        Offenders: the operators without a rule, of whose results nothing is known.
    """
    if all(v.dtype is not None and v.shape is not None for v in model.graph.outputs):
        return
    imports = model.graph.opset_imports
    found = [
        (node, _advice(node))
        for node in reversed(model.graph)
        if any(v.dtype is None for v in node.outputs)
        and gradients.find(node.domain, node.op_type, imports.get(node.domain, 1)) is None
    ]
    if found:
        raise Offenders(_rows(found))


def _rows(offenders: Sequence[tuple[ir.Node, str]]) -> list[Offender]:
    rows: dict[tuple[str, str], list[ir.Node]] = {}
    for node, why in reversed(offenders):
        rows.setdefault((full_name(node.domain, node.op_type), why), []).append(node)
    return [
        Offender(op, len(nodes), nodes[0].name or "(unnamed)", why)
        for (op, why), nodes in sorted(rows.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
