"""Forward position of each node of a training graph, its place in the line of a pipeline.

A forward node has its place in the graph, a backward node that of the node whose gradient it
serves.  Forward values go to later places and gradients to earlier ones, so that any cut of the
line gives stages that need no other order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.graph.metadata import SOURCE
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward, is_hoisted, stage
from gradtool.graph.training_info import TrainingInfo


@dataclass(frozen=True)
class Places:
    """The place of each node of a graph, and the nodes that run after backward has begun."""

    place: Mapping[ir.Node, int]
    late: AbstractSet[ir.Node]

    @property
    def forward(self) -> dict[ir.Node, int]:
        """The places of the nodes before backward."""
        return {node: place for node, place in self.place.items() if node not in self.late}


def places(model: ir.Model) -> Places:
    """The place of each node of an `accumulating` graph, or of one for evaluation."""
    graph = model.graph
    late = _late(graph)
    found = {n: p for p, n in enumerate(n for n in graph if n not in late)}
    named = {n.name: p for n, p in found.items()}
    of_next = {after: name for name, after in _after(model).items()}
    homes = homes_of(model, found)
    for node in graph:
        if node in found or stage(node) == "recompute":
            continue
        known = [found[maker] for maker in _makers(node, late) if maker in found]
        wanted = named.get(node.metadata_props.get(SOURCE, ""))
        updates = [of_next[v.name] for v in node.outputs if v.name in of_next]
        if updates:
            wanted = homes.get(updates[0], wanted)
        both = [*known, *([] if wanted is None else [wanted])]
        found[node] = min(both, default=len(named) - 1)
    _again(graph, late, found, named)
    return Places(found, late)


def _late(graph: ir.Graph) -> set[ir.Node]:
    """Backward nodes, and forward nodes hoisted from there that still run there."""
    found: set[ir.Node] = set()
    for node in graph:
        if is_backward(node) or (is_hoisted(node) and found):
            found.add(node)
    return found


def homes_of(model: ir.Model, forward: Mapping[ir.Node, int]) -> dict[str, int]:
    """By parameter and state of forward, the first place of a reader or of its next value."""
    made = {v.name: p for n, p in forward.items() for v in n.outputs}
    first: dict[ir.Value, int] = {}
    for node, place in forward.items():
        for value in reads(node):
            if value.is_initializer():
                first[value] = min(place, first.get(value, place))
    found: dict[str, int] = {}
    for name, after in _after(model).items():
        held = model.graph.initializers.get(name)
        if after in made:
            found[name] = made[after]
        elif held is not None and held in first:
            found[name] = first[held]
    return found


def _after(model: ir.Model) -> dict[str, str]:
    """The next value of state, and the sum of gradients of each parameter, by name."""
    info = TrainingInfo.of(model)
    return {**info.state, **info.gradients}


def _makers(node: ir.Node, late: AbstractSet[ir.Node]) -> Iterator[ir.Node]:
    """The late producers of a node's inputs, but for recomputed ones."""
    for value in reads(node):
        maker = value.producer()
        if maker is not None and maker in late and stage(maker) != "recompute":
            yield maker


def _again(
    graph: ir.Graph, late: AbstractSet[ir.Node], found: dict[ir.Node, int],
    named: Mapping[str | None, int],
) -> None:  # fmt: skip
    """Place recomputed nodes at the last of their readers."""
    readers: dict[ir.Node, list[int]] = {}
    for node in reversed(graph):
        if stage(node) == "recompute":
            own = named.get(node.metadata_props.get(SOURCE, ""), 0)
            found[node] = max([own, *readers.get(node, ())])
        if node in late:
            for value in reads(node):
                maker = value.producer()
                if maker is not None and stage(maker) == "recompute":
                    readers.setdefault(maker, []).append(found[node])
