"""Updates as early as they may run: gradients then do not pile up until the end of the step."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from gradtool.graph.metadata import STAGE
from gradtool.graph.predicates import NO_DATA
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_backward, stage
from gradtool.graph.training_info import TrainingInfo


def update_early(model: ir.Model) -> int:
    """Put each update right after its operands are final; returns the number of updating nodes.

    The last node of an update also waits for the other readers of the parameter, so that it may be
    written over it.  A node without reads of the step goes right before its reader.
    """
    graph = model.graph
    nodes = list(graph)
    updates = [node for node in nodes if stage(node) == "update"]
    if not updates:
        return 0
    places = _places(model, nodes, updates)
    free = dict.fromkeys(node for node in updates if node not in places)
    at: dict[int, list[ir.Node]] = {}
    for node in sorted(places, key=places.__getitem__):
        at.setdefault(places[node], []).extend(_with_free(node, free))
    end = max((i for i, node in enumerate(nodes) if stage(node) != "update"), default=-1)
    at.setdefault(end, []).extend(free)
    graph.remove(updates)
    for place, following in at.items():
        if place >= 0:
            graph.insert_after(nodes[place], following)
        else:
            graph.extend(following)
    return len(updates)


def _places(model: ir.Model, nodes: list[ir.Node], updates: list[ir.Node]) -> dict[ir.Node, int]:
    """By update that reads a value of the step, the number of the other node it follows."""
    others = {node: i for i, node in enumerate(nodes) if stage(node) != "update"}
    readers = _readers_of_state(model, nodes)
    place: dict[ir.Node, int] = {}
    for node in updates:
        makers = [p for v in reads(node) if (p := v.producer()) is not None]
        after = [place.get(n, others.get(n)) for n in makers]
        known = [p for p in after if p is not None]
        if known:
            replaced = (n for v in node.outputs for n in readers.get(v, ()) if n in others)
            place[node] = max(known + [others[n] for n in replaced])
    return place


def _with_free(node: ir.Node, free: dict[ir.Node, None]) -> list[ir.Node]:
    """A node behind its producers in `free`, which leave `free`."""
    found: list[ir.Node] = []
    waiting = [(node, False)]
    while waiting:
        each, ready = waiting.pop()
        if ready:
            found.append(each)
        elif each is node or each in free:
            free.pop(each, None)
            waiting.append((each, True))
            makers = dict.fromkeys(p for v in reads(each) if (p := v.producer()) is not None)
            waiting += [(maker, False) for maker in makers if maker in free]
    return found


def _readers_of_state(model: ir.Model, nodes: list[ir.Node]) -> Mapping[ir.Value, list[ir.Node]]:
    """By the next value of a parameter, the readers of the parameter."""
    graph = model.graph
    names = TrainingInfo.of(model).state
    replaced = {v: names[name] for name, v in graph.initializers.items() if name in names}
    found: dict[str, list[ir.Node]] = {name: [] for name in replaced.values()}
    for node in nodes:
        for value in dict.fromkeys(reads(node)):
            if value in replaced:
                found[replaced[value]].append(node)
    return {v: found[v.name] for v in graph.outputs if v.name in found}


def changing(graph: ir.Graph, names: AbstractSet[str]) -> set[ir.Value]:
    """The updated initializers and all values computed from their content."""
    found = {value for name, value in graph.initializers.items() if name in names}
    for node in graph:
        if node.op_type not in NO_DATA and any(v in found for v in reads(node)):
            found.update(node.outputs)
    return found


def mark_updates(model: ir.Model) -> None:
    """Give the stage `update` to nodes computed from gradients, and to nodes serving only these."""
    after: set[ir.Value] = set()
    for node in model.graph:
        if is_backward(node):
            after.update(node.outputs)
        elif any(v in after for v in reads(node)):
            node.metadata_props[STAGE] = "update"
            after.update(node.outputs)
    results = set(TrainingInfo.of(model).state.values())
    needed: dict[ir.Value, bool] = {
        v: v.name in results for v in model.graph.outputs if v.producer() is not None
    }
    for node in reversed(model.graph):
        serves = [needed[v] for v in node.outputs if v in needed]
        if not is_backward(node) and serves and all(serves):
            node.metadata_props[STAGE] = "update"
        for value in reads(node):
            needed[value] = needed.get(value, True) and stage(node) == "update"
