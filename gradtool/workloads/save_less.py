"""A training graph that keeps less of forward: choices instead of floats, small results hoisted.

Nothing is computed twice, and every gradient keeps its bits.  The planned peak does not rise, at
the sizes of the model or, where these are open, at those assumed: what would raise it stays.

Composites opened and nodes moved in a model, all of which can be taken back.

To try on a copy would take as much memory again as the model does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from gradtool.errors import GradtoolError
from gradtool.graph import walk
from gradtool.graph.predicates import is_float
from gradtool.graph.prune import drop, succeed
from gradtool.graph.reads import reads
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import symbols
from gradtool.operators.kernel_sets import Kernels
from gradtool.passes.layouts import storages
from gradtool.passes.masks import open_choices
from gradtool.passes.redirect_shape_reads import asks_sizes, redirect_shape_reads
from gradtool.passes.residuals import ASSUMED, Sizes, is_forward_result
from gradtool.planning.liveness import lifetimes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.packing import load_profile
from gradtool.planning.plan import Plan
from gradtool.program import Program
from gradtool.program.kinds import KEPT_BYTES
from gradtool.workloads.hoist import Decision, decide, move, unmark

ROUNDS = 8


@dataclass(frozen=True)
class Group:
    """Moves that only pay together: they release the same values.

    `names` are nodes of the graph before, `values` what the moved nodes and bodies compute.
    """

    names: frozenset[str]
    values: frozenset[str]


def save_less(
    model: ir.Model,
    *,
    masks: bool = True,
    hoisting: bool = True,
    any_peak: bool = False,
    dims: Mapping[str, int] | None = None,
) -> bool:
    """Let the backward of a model keep the fewest bytes of forward; whether that changed anything.

    With `masks` gradients that only choose by a forward value keep the choice, with `hoisting`
    every other node that needs no gradient may move; with `any_peak` what crosses is all that
    counts.  Open sizes are those of `dims`, else `residuals.ASSUMED`; a model that cannot be
    planned at these is changed whatever its peak.
    """
    dims = dict.fromkeys(symbols(model), ASSUMED) | dict(dims or {})
    sizes = Sizes(dims)
    redirected = bool(hoisting and redirect_shape_reads(model))
    scale: Scale | None = None
    barred: frozenset[str] = frozenset()

    def may_move(node: ir.Node) -> bool:
        return node.name not in barred and (hoisting or (masks and _makes_truth(node)))

    def may_open(node: ir.Node) -> bool:
        return masks and node.name not in barred

    for _ in range(ROUNDS):
        first = decide(model, sizes, may_move=may_move, may_open=may_open)
        if not first:
            break
        weightless = not first.opened and _are_of_sizes(model, first.moved, sizes)
        weighed = not (any_peak or weightless)
        scale = scale or (Scale(model, dims) if weighed else None)
        draft = Draft(model, first.opened)
        groups, idle = _move(model, draft, first, sizes, may_move)
        after = scale.heavier(model) if scale and weighed and not idle else None
        if not idle and after is None:
            return True
        barred |= idle if after is None else _at_the_peak(after, groups)
        draft.restore()
    return redirected


class Scale:
    """Weighs changes of a model by their planned peaks."""

    def __init__(self, model: ir.Model, dims: Mapping[str, int]) -> None:
        self._dims = dims
        self._program = _program(model, dims, priced=False)

    def heavier(self, changed: ir.Model) -> Plan | None:
        """The plan of a changed model if its peak is higher; None if not, or if none is known."""
        program = _program(changed, self._dims, priced=False) if self._program is not None else None
        if self._program is None or program is None:
            return None
        after = no_recompute(program)
        if after.total <= self._least or after.total <= self._before.total:
            return None
        return after

    @cached_property
    def _least(self) -> int:
        """Bytes that no plan of the model's order can be without: there is no need to pack."""
        assert self._program is not None  # noqa: S101 - asked only of what can be planned
        return int(load_profile(lifetimes(self._program), len(self._program.steps)).max())

    @cached_property
    def _before(self) -> Plan:
        assert self._program is not None  # noqa: S101 - asked only of what can be planned
        return no_recompute(self._program)


def planned(model: ir.Model, kernels: Kernels = "numpy") -> Plan | None:
    """The plan of a model; None if its sizes are open or an operator has no kernel."""
    program = _program(model, {}, kernels)
    return None if program is None else no_recompute(program)


def _program(
    model: ir.Model, dims: Mapping[str, int], kernels: Kernels = "numpy", *, priced: bool = True
) -> Program | None:
    """The program of a model at given sizes; None if some are open or have no kernel."""
    from gradtool.program.bind_dims import bound
    from gradtool.program.flatten import flatten

    try:
        sized = bound(model, dims) if dims else model
        return flatten(sized, dims=dims, kernels=kernels, priced=priced)
    except GradtoolError:
        return None


def _move(
    model: ir.Model,
    draft: Draft,
    first: Decision,
    sizes: Sizes,
    may_move: Callable[[ir.Node], bool],
) -> tuple[list[Group], frozenset[str]]:
    """Apply the decision in forward; of opened composites, decide now.

    Returns the moves, and the names of composites that were opened for nothing: then none is made.
    """
    bodies, moved = draft.bodies, first.moved
    if bodies:
        moved = decide(
            model,
            sizes,
            may_move=lambda node: node in bodies or may_move(node),
            may_open=lambda _: False,
        ).moved
    used = {bodies[node] for node in moved if node in bodies}
    idle = frozenset(node.name or "" for node in first.opened) - used
    if idle:
        return [], idle
    groups = _groups(model, moved, bodies)
    draft.move(moved)
    return groups, idle


def _are_of_sizes(model: ir.Model, moved: Sequence[ir.Node], sizes: Sizes) -> bool:
    """Whether moves take sizes and no more, or what follows of given ones is little.

    Sizes are known before a step runs, and so is what is computed of them: a program holds it, and
    where that is done moves no byte of a plan.
    """
    asking = [node for node in moved if asks_sizes(node)]
    computing = [node for node in moved if not asks_sizes(node)]
    known, changing = {v for node in asking for v in node.outputs}, TrainingInfo.of(model).changing
    for node in computing:
        others = [v for v in reads(node) if v not in known]
        if walk.subgraphs(node) or not all(_is_integer(v, changing) for v in others):
            return False
        if any((sizes.bytes(v) or math.inf) > KEPT_BYTES for v in node.outputs):
            return False
        known.update(node.outputs)
    return not computing or sizes.are_given(v for node in asking for v in reads(node))


def _is_integer(value: ir.Value, changing: Collection[str]) -> bool:
    """Whether a value is a constant that is no float: of floats some are trained."""
    if value.is_graph_input() or value.name in changing:
        return False
    return value.is_initializer() and not is_float(value)


def _makes_truth(node: ir.Node) -> bool:
    return all(v.dtype == ir.DataType.BOOL for v in node.outputs)


def _groups(
    model: ir.Model, moved: Sequence[ir.Node], bodies: Mapping[ir.Node, str]
) -> list[Group]:
    """The moves, grouped by the values of forward or of each other that they touch."""
    leaders: dict[object, object] = {}
    moves, storage = set(moved), storages(model)

    def leader(item: object) -> object:
        while leaders.setdefault(item, item) != item:
            item = leaders[item]
        return item

    for node in moved:
        touched = [storage(v) for v in reads(node)]
        touched = [v for v in touched if is_forward_result(v) or v.producer() in moves]
        name = bodies.get(node, node.name)
        for item in (*touched, *node.outputs):
            leaders[leader(item)] = leader(name)
    members: dict[object, list[ir.Node]] = {}
    for node in (*moved, *(n for n in bodies if n not in moves)):
        members.setdefault(leader(bodies.get(node, node.name)), []).append(node)
    return [_group(nodes, bodies) for nodes in members.values()]


def _group(nodes: Sequence[ir.Node], bodies: Mapping[ir.Node, str]) -> Group:
    return Group(
        frozenset(bodies.get(n, n.name or "") for n in nodes),
        frozenset(v.name or "" for n in nodes for v in n.outputs),
    )


def _at_the_peak(plan: Plan, groups: Iterable[Group]) -> frozenset[str]:
    """The moves alive where memory is scarcest; all of them if none is."""
    program = plan.program
    alive = {program.values[v].name for b in plan.live(plan.peak_step) for v in b.values}
    there = [group for group in groups if group.values & alive]
    return frozenset(name for group in there or groups for name in group.names)


class Draft:
    """A model in which `opened` are replaced by their bodies, until it is restored or kept.

    `bodies` names, by node of a body, the composite that it was.
    """

    def __init__(self, model: ir.Model, opened: Sequence[ir.Node]) -> None:
        graph = model.graph
        self._graph, self._model = graph, model
        self._order = list(graph)
        self._initializers = set(graph.initializers)
        self._versions = model.ir_version, dict(graph.opset_imports)
        self._opened = [(node, node.inputs, node.device_configurations) for node in opened]
        self._moved: tuple[ir.Node, ...] = ()
        self.bodies, self._results = open_choices(model, opened)

    def move(self, nodes: Iterable[ir.Node]) -> None:
        """Compute nodes in forward; once."""
        self._moved = tuple(nodes)
        move(self._model, self._moved)

    def restore(self) -> None:
        """Take everything back: nodes, their order, names, and what constants bodies brought."""
        graph = self._graph
        for old, new in self._results.items():
            succeed(old, new)
        for node in self._moved:
            unmark(node)
        drop(self.bodies)
        graph.remove(node for node in self._moved if node not in self.bodies)
        for node, inputs, devices in self._opened:
            for slot, value in enumerate(inputs):
                node.replace_input_with(slot, value)
            node.device_configurations = devices
        following: ir.Node | None = None
        for node in reversed(self._order):
            if node.graph is None:
                if following is None:
                    graph.append(node)
                else:
                    graph.insert_before(following, node)
            following = node
        for name in [name for name in graph.initializers if name not in self._initializers]:
            del graph.initializers[name]
        self._model.ir_version, opsets = self._versions
        graph.opset_imports.clear()
        graph.opset_imports.update(opsets)
