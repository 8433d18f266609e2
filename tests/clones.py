"""Training graphs in which forward values are computed again, made by hand."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from gradtool.graph.names import Names


def recompute(model: ir.Model, dropped: Collection[str]) -> ir.Model:
    """A copy in which backward computes the values named in `dropped` again.

    A clone stands just before the first node that needs it, what it needs before it.
    """
    model = model.clone()
    names, clones = Names.of(model), {}
    for node in list(model.graph):
        if node.metadata_props.get("gradtool.stage") == "backward":
            _replace(node, node, dropped, names, clones)
    return model


def _replace(
    node: ir.Node,
    anchor: ir.Node,
    dropped: Collection[str],
    names: Names,
    clones: dict[ir.Value, ir.Value],
) -> None:
    """Let a node read clones for the values that are dropped, made before `anchor`."""
    for slot, value in enumerate(node.inputs):
        if value is None or value.name not in dropped:
            continue
        if value not in clones:
            _clone(value, anchor, dropped, names, clones)
        node.replace_input_with(slot, clones[value])


def _clone(
    value: ir.Value,
    anchor: ir.Node,
    dropped: Collection[str],
    names: Names,
    clones: dict[ir.Value, ir.Value],
) -> None:
    node = value.producer()
    made = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes.values(),
        num_outputs=len(node.outputs),
        name=names.fresh(f"{node.name}_mirror"),
        metadata_props={"gradtool.stage": "recompute", "gradtool.source": node.name},
    )
    for old, new in zip(node.outputs, made.outputs, strict=True):
        new.name = names.fresh(f"{old.name}_mirror")
        new.shape, new.type = old.shape, old.type
        new.metadata_props.update(old.metadata_props)
        clones[old] = new
    _replace(made, anchor, dropped, names, clones)
    anchor.graph.insert_before(anchor, made)
