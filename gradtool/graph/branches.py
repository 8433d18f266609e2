"""Replacement of an If of known condition by the nodes of its branch."""

from __future__ import annotations

import onnx_ir as ir

from gradtool.graph import walk
from gradtool.graph.names import Names


def taken(node: ir.Node) -> ir.Graph | None:
    """The branch taken by an If; None for another node or an unknown condition."""
    condition = node.inputs[0] if node.op_type == "If" and not node.domain else None
    if condition is None or condition.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(condition)
    if tensor is None or tensor.size != 1:
        return None
    return node.attributes[_branch(bool(tensor.numpy().item()))].as_graph()


def left(node: ir.Node) -> str | None:
    """The name of the dead branch of an If, if known."""
    branch = taken(node)
    then = _branch(True)
    if branch is None:
        return None
    return _branch(branch is not node.attributes[then].as_graph())


def _branch(condition: bool) -> str:  # noqa: FBT001 - what an If is given
    return "then_branch" if condition else "else_branch"


def take(model: ir.Model, names: Names | None = None) -> int:
    """Do without every If whose condition is known; returns how many there were.

    `names` are those of the model, where they are known.
    """
    found = [(node, b) for node in walk.nodes(model.graph) if (b := taken(node)) is not None]
    if found and names is None:
        names = Names.of(model)
    for node, branch in found:
        assert names is not None  # noqa: S101 - something was found
        _inline(node, branch, names)
    return len(found)


def _inline(node: ir.Node, branch: ir.Graph, names: Names) -> None:
    graph = node.graph
    assert graph is not None  # noqa: S101 - it is in the model
    results, nodes = list(branch.outputs), list(branch)
    branch.outputs.clear()
    branch.remove(nodes)
    for value in list(branch.initializers.values()):
        del branch.initializers[value.name or ""]
        value.name = names.fresh(value.name or "constant")
        graph.register_initializer(value)
    for inner in nodes:
        inner.name = names.fresh(inner.name) if inner.name else inner.name
        for value in inner.outputs:
            value.name = names.fresh(value.name) if value.name else value.name
    for old, result in zip(node.outputs, results, strict=True):
        same = ir.Node("", "Identity", [result], name=names.fresh(f"{node.name}/taken"))
        made = same.outputs[0]
        made.type, made.shape, made.const_value = result.type, result.shape, result.const_value
        made.name, old.name = old.name, names.fresh(old.name or "unused")
        ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
        nodes.append(same)
    graph.insert_before(node, nodes)
    for reader in (node, *(n for inner in walk.subgraphs(node) for n in walk.nodes(inner))):
        for slot in range(len(reader.inputs)):
            reader.replace_input_with(slot, None)
    graph.remove(node)
