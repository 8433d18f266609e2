"""Tensors made one of several equal ones by an exporter.

Exporters keep one of the tensors that happen to be equal when they run: the gains of fresh norms
are all ones.  In a model for inference that changes nothing; trained, they move as one.

Initializers of bodies become those of the main graph, readable by every body.

Differentiated values move from one body to another, and a weight of a loop is trained as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import MissingData
from gradtool.graph import walk
from gradtool.graph.training_info import add_location
from gradtool.io import array
from gradtool.passes.exporters import REMEDY
from gradtool.passes.provenance import module
from gradtool.text.words import count, some

MERGED = (
    "they are trained as one; if they are not tied on purpose, the exporter merged what was equal "
    f"when it ran: {REMEDY}"
)
STATISTICS = {3: "running_mean", 4: "running_var"}  # by input of BatchNormalization


# ----------------------------------------------------------------------------- statistics


def separate_statistics(op: Builder) -> None:
    """Give each running statistic of the builder's model a tensor of its own, in place.

    They start as the gains and biases do, as ones and zeros, but no gradient flows into them.
    """
    taken: set[ir.Value] = set()
    for node in list(walk.nodes(op.graph)):
        if node.op_type != "BatchNormalization" or node.domain not in ("", "ai.onnx"):
            continue
        for slot, what in STATISTICS.items():
            value = node.inputs[slot]
            tensor = _origin(value)
            if value is None or tensor is None:
                continue
            own = all(use.idx in STATISTICS for use in tensor.uses()) and tensor is value
            if tensor in taken or not own:
                name = f"{module(node) or node.name or node.op_type}.{what}"
                copy = _copy(op, tensor, name)
                node.replace_input_with(slot, copy)
                _rename(copy, value)
                add_location(op.model, copy.name or "", node, slot=slot)
            taken.add(tensor)


def _origin(value: ir.Value | None) -> ir.Value | None:
    """The initializer behind a value through copies, or itself."""
    while value is not None and not value.is_initializer():
        node = value.producer()
        if node is None or node.op_type != "Identity":
            return None
        value = node.inputs[0]
    return value


def _copy(op: Builder, tensor: ir.Value, name: str) -> ir.Value:
    """A new initializer with the numbers of another."""
    made = ir.Value(
        name=op.names.fresh(name),
        shape=tensor.shape,
        type=tensor.type,
        const_value=tensor.const_value,
    )
    op.root.register_initializer(made)
    return made


def _rename(copy: ir.Value, value: ir.Value) -> None:
    """Give a copy the name of its source, if nobody reads that any more."""
    node = value.producer()
    if node is None or value.uses() or value.is_graph_output() or node.graph is None:
        return
    name, value.name = value.name, None
    node.graph.remove(node, safe=True)
    copy.name = name


# -------------------------------------------------------------------------------- warnings


def merged(parameters: Iterable[ir.Value]) -> list[str]:
    """A warning with the parameters that stand for several tensors of the model."""
    found = [(v, places) for v in parameters if (places := _places(v))]
    if not found:
        return []
    listed = some((f"{v.name} ({some(places, most=6)})" for v, places in found), most=6)
    return [f"{count(len(found), 'parameter')} read by several layers: {listed}; {MERGED}"]


def _places(value: ir.Value) -> list[str]:
    """The names or layers that a tensor stands for; none if it stands for itself alone.

    Weights tied on purpose are read by different operators, or by one module again.
    """
    copies = [u.node.outputs[0].name or "" for u in value.uses() if u.node.op_type == "Identity"]
    if copies:
        return [value.name or "", *sorted(copies)]
    readers = [use for use in value.uses() if use.node.op_type != "Gather"]
    if len(readers) < 2 or len({(use.node.op_type, use.idx) for use in readers}) > 1:
        return []
    modules = [module(use.node) for use in readers]
    if None not in modules:
        places = list(dict.fromkeys(str(place) for place in modules))
        return places if len(places) > 1 else []
    nodes = [use.node.name or use.node.op_type for use in readers]
    script = all(name.startswith("/") for name in nodes)  # TorchScript copies merged tensors
    return nodes if not script and _is_fresh(value) else []


def _is_fresh(value: ir.Value) -> bool:
    """Whether all elements are 0 or all are 1, as before training."""
    tensor = value.const_value
    if tensor is None:
        return False
    try:
        numbers = array(tensor)
    except MissingData:
        return False
    return bool((numbers == 0).all() or (numbers == 1).all())


def lift_initializers(op: Builder) -> None:
    """Move them, in place. One that is an input of its body as well stays there."""
    main = op.model.graph
    found = [
        (graph, value)
        for graph in walk.graphs(main)
        for value in graph.initializers.values()
        if graph is not main and value not in graph.inputs
    ]
    for graph, value in found:
        _return_copies(op, graph, value)
        del graph.initializers[value.name or ""]
        if value.name in main.initializers:
            value.name = op.names.fresh(value.name or "constant")
        main.register_initializer(value)


def _return_copies(op: Builder, graph: ir.Graph, value: ir.Value) -> None:
    """Return a copy of an outer value from a body, which returns computed values only."""
    for slot, output in enumerate(graph.outputs):
        if output is value:
            with op.at(None, stage="forward", source="", prefix=graph.name or ""), op.inside(graph):
                graph.outputs[slot] = op.Identity(value)
