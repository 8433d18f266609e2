"""Nodes like others: the same operator and inputs, new names and new outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from gradtool.graph.names import Names


def clone(
    node: ir.Node,
    names: Names,
    suffix: str,
    metadata: Mapping[str, str],
    *,
    value_suffix: str | None = None,
) -> ir.Node:
    """A node like another one, in no graph yet; bodies are copied, and so are types and shapes.

    Node and outputs are called as the originals plus `suffix` (outputs by `value_suffix`, if that
    is another).
    """
    made = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        list(_attributes(node, names)),
        overload=node.overload,
        num_outputs=len(node.outputs),
        name=names.fresh(f"{node.name}{suffix}"),
        doc_string=node.doc_string,
        metadata_props=dict(metadata),
    )
    ending = suffix if value_suffix is None else value_suffix
    for old, new in zip(node.outputs, made.outputs, strict=True):
        new.name = names.fresh(f"{old.name}{ending}") if old.name else old.name
        new.type = old.type
        new.metadata_props.update(old.metadata_props)
        new.shape = None if old.shape is None else old.shape.copy()
    return made


def rename(names: Names, graph: ir.Graph) -> None:
    """New names for all definitions of a copied subgraph."""
    for each in (graph, *graph.subgraphs()):
        for value in (*each.inputs, *each.initializers.values()):
            value.name = names.fresh(value.name or "value")
        for node in each:
            node.name = names.fresh(node.name or node.op_type)
            for value in node.outputs:
                if value.name:
                    value.name = names.fresh(value.name)


def _attributes(node: ir.Node, names: Names) -> Iterator[ir.Attr]:
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            inner = attr.as_graph().clone(allow_outer_scope_values=True)
            rename(names, inner)
            yield ir.AttrGraph(attr.name, inner)
        else:
            yield attr
