"""Local functions of a file, replaced by their bodies before anything else looks at the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import onnx_ir as ir
from onnx import defs

from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.limits import DEFAULT, Limits


def inline_functions(
    model: ir.Model, keep: Callable[[str, str], bool], limits: Limits = DEFAULT
) -> None:
    """Replace every call of a local function by its body, unless `keep(domain, name)`.

    Functions that nothing calls any more are dropped. The outputs of a call keep their names.

    Raises:
        ModelError: functions call each other in a circle or too deep, expand to too many nodes,
            or mean another version of an operator than the model does.
    """
    if not model.functions:
        return
    _check_expansion(model, limits)
    kept = [function for key, function in model.functions.items() if keep(key[0], key[1])]
    inlined = {key: f for key, f in model.functions.items() if f not in kept}
    for function in inlined.values():
        _import(model, function)
    names = _Names(model)
    bodies: list[ir.Graph | ir.Function] = [model.graph, *kept]
    for body in bodies:
        pending = _calls(walk.nodes(body), inlined)
        while pending:
            call = pending.pop()
            nodes = _expand(call, inlined[call.op_identifier()], names)
            for node in nodes:
                pending.extend(_calls((node, *_nested(node)), inlined))
    for key in inlined:
        del model.functions[key]


def _bodies(model: ir.Model) -> list[ir.Graph | ir.Function]:
    return [model.graph, *model.functions.values()]


def _calls(
    nodes: Iterable[ir.Node], functions: dict[ir.OperatorIdentifier, ir.Function]
) -> list[ir.Node]:
    return [node for node in nodes if node.op_identifier() in functions]


def _nested(node: ir.Node) -> Iterator[ir.Node]:
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield from walk.nodes(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            for graph in attribute.as_graphs():
                yield from walk.nodes(graph)


def _expand(call: ir.Node, function: ir.Function, names: _Names) -> list[ir.Node]:
    """Put a copy of the function's body in the place of a call; return its nodes."""
    body = function.clone()
    _give_attributes(body, call)
    actuals = [*call.inputs, *[None] * (len(body.inputs) - len(call.inputs))]
    outputs = list(body.outputs)
    body.outputs.clear()
    given = dict(zip(body.inputs, actuals, strict=True))
    for formal, actual in given.items():
        for use in list(formal.uses()):
            use.node.replace_input_with(use.idx, actual)
    nodes = list(body)
    body.remove(nodes)
    results: list[ir.Value] = []
    for output in outputs[: len(call.outputs)]:
        source = given.get(output, output)
        if source is not output or output in results:
            identity = ir.node("Identity", [source])
            nodes.append(identity)
            results.append(identity.outputs[0])
        else:
            results.append(output)
    names.rename(nodes, call.name)
    for node in nodes:
        node.metadata_props.update({**call.metadata_props, **node.metadata_props})
    place = call.graph
    if place is None:
        raise ModelError(f"call of {function.name!r} lies in no graph")
    ir.convenience.replace_nodes_and_values(place, call, [call], nodes, call.outputs, results)
    return nodes


def _give_attributes(body: ir.Function, call: ir.Node) -> None:
    """Put values in the place of the body's references to the function's attributes."""
    for node in walk.nodes(body):
        for name, attribute in list(node.attributes.items()):
            if not attribute.is_ref():
                continue
            wanted = attribute.ref_attr_name or ""
            value = call.attributes.get(wanted)
            if value is None:
                default = body.attributes.get(wanted)
                value = default if default is not None and default.value is not None else None
            if value is None:
                del node.attributes[name]
            elif value.is_ref():
                node.attributes[name] = ir.RefAttr(name, value.ref_attr_name or "", value.type)
            else:
                node.attributes[name] = ir.Attr(name, value.type, value.value)


class _Names:
    """Free names of values and nodes, found in constant time."""

    def __init__(self, model: ir.Model) -> None:
        self.taken: set[str] = set()
        self.next: dict[str, int] = {}
        for body in _bodies(model):
            self.taken.update(value.name for value in body.inputs if value.name)
            for graph in body.subgraphs():
                self.taken.update(value.name for value in graph.inputs if value.name)
                self.taken.update(graph.initializers)
            for node in walk.nodes(body):
                self.taken.update(filter(None, (node.name, *(v.name for v in node.outputs))))
        self.taken.update(model.graph.initializers)

    def free(self, name: str) -> str:
        number = self.next.get(name, 1)
        while (candidate := f"{name}_{number}") in self.taken:
            number += 1
        self.next[name] = number + 1
        self.taken.add(candidate)
        return candidate

    def rename(self, nodes: Iterable[ir.Node], call: str | None) -> None:
        """Give new names to the nodes of a body and to all their definitions."""
        for top in nodes:
            for node in (top, *_nested(top)):
                node.name = self.free(f"{call or ''}/{node.name or node.op_type}".lstrip("/"))
                for value in node.outputs:
                    if value.name:
                        value.name = self.free(value.name)
                    elif value.name is None:
                        value.name = self.free(f"{node.name}_output")
                for attribute in node.attributes.values():
                    if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                        self._rename_graph(attribute.as_graph())

    def _rename_graph(self, graph: ir.Graph) -> None:
        for value in (*graph.inputs, *graph.initializers.values()):
            value.name = self.free(value.name or "value")


def _import(model: ir.Model, function: ir.Function) -> None:
    """Import the domains of a body; refuse one that means other operators than the model."""
    for domain, version in function.opset_imports.items():
        there = model.graph.opset_imports.setdefault(domain, version)
        if there == version:
            continue
        for node in walk.nodes(function):
            if node.domain == domain and not _same(node.op_type, domain, version, there):
                raise ModelError(
                    f"local function {function.name!r} means {node.op_type} of opset {version}, "
                    f"which differs from the model's opset {there}"
                )


def _same(name: str, domain: str, first: int, second: int) -> bool:
    try:
        found = [defs.get_schema(name, v, domain).since_version for v in (first, second)]
    except defs.SchemaError:
        return False
    return found[0] == found[1]


def _check_expansion(model: ir.Model, limits: Limits) -> None:
    """Refuse recursion, and expansion past the limits, without expanding anything."""
    written = sum(len(list(walk.nodes(body))) for body in _bodies(model))
    most = max(limits.free_nodes, limits.expansion * written)
    most = min(most, limits.expanded_nodes)
    totals: dict[ir.OperatorIdentifier, int] = {}

    def total(key: ir.OperatorIdentifier, depth: int) -> int:
        if depth > limits.call_depth:
            raise ModelError(
                f"local function {key[1]!r} is called more than {limits.call_depth} calls deep"
            )
        if key not in totals:
            totals[key] = count(model.functions[key], depth)
        return totals[key]

    def count(body: ir.Graph | ir.Function, depth: int) -> int:
        nodes = 0
        for node in walk.nodes(body):
            key = node.op_identifier()
            nodes += total(key, depth + 1) if key in model.functions else 1
        if nodes > most:
            raise ModelError(f"local functions expand to more than {most} nodes")
        return nodes

    for key in model.functions:
        total(key, 0)
    count(model.graph, 0)
