"""Backward nodes without a gradient among their inputs, computed in forward to keep less.

A backward node whose inputs are all results of forward (or of such nodes) is free to move.  Which
ones move is a least cut: the values between those that move and those that stay are what backward
keeps, and their bytes are least.  Of equal cuts the one with the fewest moves is taken.

Source: MegEngine's backward graph optimisation (`imperative/src/impl/backward_graph_opt.cpp`),
which moves operators on shapes only, and only if an input is not kept anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.graph.metadata import HOISTED, STAGE
from gradtool.graph.randomness import draws
from gradtool.graph.reads import captured, reads
from gradtool.graph.stages import cotangents, is_backward, is_hoisted, stage
from gradtool.passes.layouts import is_layout, storages
from gradtool.passes.masks import choice_bytes, choice_of, choice_reads
from gradtool.passes.residuals import Sizes, is_forward_result
from gradtool.planning.flow import min_cut

Allowed = Callable[[ir.Node], bool]


@dataclass(frozen=True)
class Decision:
    """The nodes to compute in forward, and the composites to open so that their choice may be.

    Both in the order of the graph.
    """

    moved: tuple[ir.Node, ...]
    opened: tuple[ir.Node, ...]

    def __bool__(self) -> bool:
        return bool(self.moved or self.opened)


def decide(
    model: ir.Model,
    sizes: Sizes,
    *,
    may_move: Allowed = lambda _: True,
    may_open: Allowed = lambda _: True,
) -> Decision:
    """The moves with the fewest bytes across the cut from forward to backward.

    Nothing moves that draws random numbers, is computed again, is a result of the model or has an
    unknown size.
    `may_move` says which free nodes are considered, `may_open` which composites with a choice.
    """
    given = cotangents(model)
    if given is None:
        return Decision((), ())
    free = _free(model, given, sizes, may_move)
    nodes = [node for node in model.graph if is_backward(node)]
    choosing = {node for node in nodes if choice_of(node) is not None and may_open(node)}
    if not free and not choosing:
        return Decision((), ())
    network = _Network(model, sizes, free, choosing)
    for node in nodes:
        network.add(node, choice=node in choosing)
    return network.solve()


def _free(
    model: ir.Model, given: Iterable[ir.Value], sizes: Sizes, may_move: Allowed
) -> dict[ir.Node, None]:
    """The backward nodes that may move: no gradient reaches them, nor what can't move."""
    bound, found = set(given), dict[ir.Node, None]()
    for node in filter(is_backward, model.graph):
        stays = stage(node) != "backward" or not may_move(node)
        stays = stays or not bound.isdisjoint(reads(node))
        stays = stays or any(v.is_graph_output() or sizes.bytes(v) is None for v in node.outputs)
        if stays or draws(node):
            bound.update(node.outputs)
        else:
            found[node] = None
    return found


class _Network:
    """The arcs of the cut.  On the source's side is what is computed in forward.

    A value is a node of its own, after what computes it: it is on the sink's side if it crosses,
    which costs its bytes, and beyond every reader that stays.
    """

    SOURCE, SINK = 0, 1

    def __init__(
        self, model: ir.Model, sizes: Sizes, free: dict[ir.Node, None], choosing: set[ir.Node]
    ) -> None:
        self.model, self.sizes, self.free = model, sizes, free
        movable = (*free, *choosing)
        self.storage = storages(model)
        self.touched = {self.storage(v) for node in movable for v in reads(node)}
        self.movers: dict[ir.Node, int] = {}
        self.values: dict[ir.Value, int] = {}
        self.arcs: list[tuple[int, int, int | None]] = []
        self.count = 2

    def add(self, node: ir.Node, *, choice: bool) -> None:
        """Add a backward node: what it reads, and what computes that, are there already."""
        if node in self.free:
            mover = self._mover(node)
            self._after(mover, reads(node))
            if not is_layout(self.model, node):
                self._read(mover, reads(node))
            return
        found = choice_of(node) if choice else None
        size = None if found is None else choice_bytes(node, found, self.sizes)
        if found is not None and size is not None:
            chosen, rest = choice_reads(node, found)
            if all(self._is_free(v) for v in chosen):
                mover = self._mover(node)
                self._after(mover, chosen)
                self._read(mover, chosen)
                self._read(self.SINK, rest)
                self.arcs.append((mover, self.SINK, size))
                return
        self._read(self.SINK, reads(node))

    def solve(self) -> Decision:
        """Cut, and read off who is on the source's side."""
        arcs = self._open_arcs()
        if not any(tail == self.SOURCE for tail, _, _ in arcs):
            return Decision((), ())
        side = min_cut(self.count, arcs, self.SOURCE, self.SINK).source_side
        moved = [node for node, number in self.movers.items() if side[number]]
        return Decision(
            tuple(n for n in moved if n in self.free), tuple(n for n in moved if n not in self.free)
        )

    def _open_arcs(self) -> list[tuple[int, int, int | None]]:
        """The arcs without those of forward values that cross in any case."""
        sure = {tail for tail, head, _ in self.arcs if head == self.SINK}
        made = {head for tail, head, size in self.arcs if tail != self.SOURCE and size is not None}
        sure -= made | set(self.movers.values())
        return [
            (tail, head, size) for tail, head, size in self.arcs
            if tail not in sure and head not in sure and size != 0
        ]  # fmt: skip

    def _mover(self, node: ir.Node) -> int:
        self.movers[node] = self._number()
        return self.movers[node]

    def _number(self) -> int:
        self.count += 1
        return self.count - 1

    def _is_free(self, value: ir.Value) -> bool:
        producer = value.producer()
        return producer in self.free or producer is None or not is_backward(producer)

    def _after(self, mover: int, values: Iterable[ir.Value]) -> None:
        """Whoever moves takes along what computes its inputs."""
        producers = dict.fromkeys(v.producer() for v in values)
        self.arcs += [(mover, self.movers[p], None) for p in producers if p in self.free]

    def _read(self, reader: int, values: Iterable[ir.Value]) -> None:
        """A reader that stays keeps the operands of its inputs."""
        for value in dict.fromkeys(map(self.storage, values)):
            if value in self.values or self._is_saved(value):
                self.arcs.append((self._value(value), reader, None))

    def _is_saved(self, value: ir.Value) -> bool:
        """Whether it is open if a value crosses: one of forward that no mover reads does anyway."""
        made = value.producer() in self.free
        return made or (value in self.touched and is_forward_result(value))

    def _value(self, value: ir.Value) -> int:
        if value not in self.values:
            number = self.values[value] = self._number()
            producer = value.producer()
            maker = self.movers[producer] if producer in self.free else self.SOURCE
            self.arcs.append((maker, number, self.sizes.kept_bytes(value) or 0))
        return self.values[value]


def move(model: ir.Model, nodes: Iterable[ir.Node]) -> None:
    """Make backward nodes forward, each right after the last node that computes an input of it.

    Those that read inputs and parameters only go right before their first reader.  `nodes` are in
    the order of the graph.
    """
    graph = model.graph
    place = {node: (index, 0) for index, node in enumerate(graph)}
    moved = list(nodes)
    waiting = dict.fromkeys(moved)
    tails: dict[int, ir.Node] = {}
    graph.remove(moved)  # at once: each call looks at all results of the graph
    for node in moved:
        before = [p for v in reads(node) if (p := v.producer()) in place and p not in waiting]
        if before:
            last = max(before, key=place.__getitem__)
            index, _ = place[last]
            graph.insert_after(tails.get(index, last), node)
            place[node] = (index, place[tails.get(index, last)][1] + 1)
            tails[index] = node
            del waiting[node]
    for node in reversed(waiting):
        graph.insert_before(_first_reader(graph, node), node)
    for node in moved:
        node.metadata_props.update({STAGE: "forward", HOISTED: "1"})


def unmark(node: ir.Node) -> None:
    """Make a node that was moved one of backward again; it stays where it is."""
    del node.metadata_props[HOISTED]
    node.metadata_props[STAGE] = "backward"


def move_back(model: ir.Model) -> None:
    """Put the nodes that were moved back to backward, each right before its first reader there."""
    graph = model.graph
    for node in reversed([n for n in graph if is_hoisted(n)]):
        unmark(node)
        graph.remove(node)
        graph.insert_before(_first_reader(graph, node), node)


def _first_reader(graph: ir.Graph, node: ir.Node) -> ir.Node:
    outputs = set(node.outputs)
    users = {use.node for v in outputs for use in v.uses()}
    inside = any(user.graph is not graph for user in users)
    return next(n for n in graph if n in users or (inside and not outputs.isdisjoint(captured(n))))
