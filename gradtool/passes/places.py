"""Where each node of a training graph stands in the line of its forward pass.

A forward node has the place that the graph gives it, a backward node that of the node whose
gradient it serves.  Forward values go to later places and gradients to earlier ones, so that any
cut of the line gives stages that need no other order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from gradtool.graph.metadata import GRADIENTS, SOURCE, STATE
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward, stage

Places = Mapping[ir.Node, int]


def places(model: ir.Model) -> dict[ir.Node, int]:
    """The place of each node of an `accumulating` graph, or of one that evaluates."""
    graph = model.graph
    found = {n: p for p, n in enumerate(n for n in graph if not is_backward(n))}
    named = {n.name: p for n, p in found.items()}
    of_next = {after: name for name, after in _after(model).items()}
    homes = homes_of(model, found)
    for node in graph:
        if node in found or stage(node) == "recompute":
            continue
        known = [p for p in map(found.get, _backward(node)) if p is not None]
        wanted = named.get(node.metadata_props.get(SOURCE, ""))
        updates = [of_next[v.name] for v in node.outputs if v.name in of_next]
        if updates:
            wanted = homes.get(updates[0], wanted)
        both = [*known, *([] if wanted is None else [wanted])]
        found[node] = min(both, default=len(named) - 1)
    _again(graph, found, named)
    return found


def homes_of(model: ir.Model, forward: Places) -> dict[str, int]:
    """By parameter and state of forward, the first place that reads it or makes its next value."""
    made = {v.name: p for n, p in forward.items() for v in n.outputs}
    first: dict[ir.Value, int] = {}
    for node, place in forward.items():
        for value in reads(node):
            if value.is_initializer():
                first[value] = min(place, first.get(value, place))
    found: dict[str, int] = {}
    for name, after in _after(model).items():
        value = model.graph.initializers.get(name)
        if after in made:
            found[name] = made[after]
        elif value in first:
            found[name] = first[value]
    return found


def _after(model: ir.Model) -> dict[str, str]:
    """The next value of state, and the sum of gradients of each parameter, by name."""
    props = model.metadata_props
    known = (json.loads(props.get(key, "{}")) for key in (STATE, GRADIENTS))
    return {name: after for each in known for name, after in each.items()}


def _backward(node: ir.Node) -> Iterator[ir.Node]:
    """The backward nodes whose results a node reads, but for what is computed again."""
    for value in reads(node):
        maker = value.producer()
        if maker is not None and is_backward(maker) and stage(maker) != "recompute":
            yield maker


def _again(graph: ir.Graph, found: dict[ir.Node, int], named: Mapping[str | None, int]) -> None:
    """What is computed again stands where the last of those is that read it."""
    readers: dict[ir.Node, list[int]] = {}
    for node in reversed(graph):
        if stage(node) == "recompute":
            own = named.get(node.metadata_props.get(SOURCE, ""), 0)
            found[node] = max([own, *readers.get(node, ())])
        if is_backward(node):
            for value in reads(node):
                maker = value.producer()
                if maker is not None and stage(maker) == "recompute":
                    readers.setdefault(maker, []).append(found[node])
