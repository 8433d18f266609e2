"""Differentiating a subgraph: its gradient becomes a graph of its own.

The driver appends the gradient to the subgraph itself.  The new nodes then move to another graph,
the body of the backward node.  The forward values that they read are computed again there where
that is cheap, and handed over by the forward node where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.emit.clones import clone
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.prune import drop, inner_nodes
from gradtool.graph.randomness import RANDOM
from gradtool.graph.reads import reads
from gradtool.graph.walk import subgraphs
from gradtool.ops.driver import differentiate

Heads = Callable[[], Mapping[ir.Value, ir.Value]]
Redo = Callable[[ir.Node], bool]


class Body:
    """A subgraph and its gradient, on the way from one graph to another.

    `gradients` are those that aren't zero, by the value they are of.  `handed` are the forward
    values that the gradient needs and that must be brought to it; `read` are those of `leaves`
    that it needs.
    """

    def __init__(
        self, op: Builder, graph: ir.Graph, cotangents: Heads, wrt: Sequence[ir.Value], *,
        leaves: Sequence[ir.Value] = (), apart: Sequence[ir.Value] = (), redo: Redo,
    ) -> None:  # fmt: skip
        """Append the gradient of `Σ ⟨head gradient, head⟩` to `graph`, and note its reads.

        `heads` is called where its nodes belong to the gradient.  Nodes that `redo` allows are
        computed again, as far as what they read is at hand: captured values and `leaves`.
        Values of `apart` get a gradient too, which goes no further.
        """
        self.op, self.graph = op, graph
        cut = {v: ir.Value(name=op.names.fresh("cut"), type=v.type, shape=v.shape) for v in apart}
        with op.inside(graph):
            op.Identity(True)  # what comes before is forward, even if the driver replaces nodes
            mark = graph[-1]
            given = {cut.get(v, v): dy for v, dy in cotangents().items()}
            for value, leaf in cut.items():
                value.replace_all_uses_with(leaf, replace_graph_outputs=True)
            made = differentiate(op, given, [*wrt, *cut.values()])
            for value, leaf in cut.items():
                leaf.replace_all_uses_with(value, replace_graph_outputs=True)
        nodes = list(graph)
        first = nodes.index(mark)
        self._forward = nodes[:first]
        self._local = {*graph.inputs, *(v for n in self._forward for v in n.outputs)}
        whole = {leaf: value for value, leaf in cut.items()}
        found = made.gradients.items()
        self.gradients = {whole.get(v, v): dy for v, dy in found if v not in made.zeros}
        self._moving = self._live(nodes[first + 1 :])
        drop([n for n in nodes[first:] if n not in self._moving])
        self.graph.remove(self._moving)
        self._replace_shapes()
        needed = self._needed()
        cheap = self._cheap({*leaves}, redo)
        self._again: list[ir.Node] = []
        for node in reversed(self._forward):
            if node in cheap and any(v in needed for v in node.outputs):
                self._again.insert(0, node)
                needed.update(dict.fromkeys(v for v in reads(node) if v in self._local))
        done = {v for node in self._again for v in node.outputs}
        self.read = tuple(v for v in leaves if v in needed)
        self.handed = tuple(v for v in needed if v not in done and v not in leaves)

    def move(self, known: dict[ir.Value, ir.Value]) -> dict[ir.Value, ir.Value]:
        """Put the gradient at the end of the builder's graph; return it by the value it is of.

        `known` gives what stands there for each of `handed` and `read`.  A value of which it is
        zero is left out.
        """
        target = self.op.graph
        for node in self._again:
            copy(self.op, node, known)
        for node in self._moving:
            target.append(node)
            replace_reads(node, known)
        return {v: known.get(dy, dy) for v, dy in self.gradients.items()}

    # ------------------------------------------------------------------- what is read

    def _live(self, nodes: Sequence[ir.Node]) -> list[ir.Node]:
        wanted = set(self.gradients.values())
        found = []
        for node in reversed(nodes):
            if any(v in wanted for v in node.outputs):
                found.append(node)
                wanted.update(reads(node))
        return found[::-1]

    def _needed(self) -> dict[ir.Value, None]:
        read = (v for node in self._moving for v in reads(node))
        return dict.fromkeys(v for v in (*read, *self.gradients.values()) if v in self._local)

    def _cheap(self, at_hand: set[ir.Value], redo: Redo) -> set[ir.Node]:
        found: set[ir.Node] = set()
        for node in self._forward:
            local = [v for v in reads(node) if v in self._local]
            if redo(node) and all(v in at_hand for v in local):
                found.add(node)
                at_hand.update(node.outputs)
            elif is_random(node):  # what it drew is handed over, whatever it costs
                at_hand.update(node.outputs)
        return found

    def _replace_shapes(self) -> None:
        """Let the gradient read sizes outside, where they are the same in every turn.

        A size that is not is read in the forward body and handed over, not the tensor it is of.
        """
        gone = []
        for node in [m for n in self._moving for m in (n, *inner_nodes(n))]:
            value = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
            if value is None or value not in self._local or value.shape is None:
                continue
            start = node.attributes.get_int("start", 0)
            end = node.attributes.get_int("end", len(value.shape))
            found = self._size_outside(value, start, end)
            if found is None:
                with self.op.inside(self.graph):
                    found = self.op.Shape(value, start=start, end=end)
                    made = self.op.emitted[-1]
                made.metadata_props[STAGE] = "forward"
                self._forward.append(made)
                self._local.add(found)
            node.outputs[0].replace_all_uses_with(found)
            self.gradients = {
                v: found if dy is node.outputs[0] else dy for v, dy in self.gradients.items()
            }
            gone.append(node)
            node.replace_input_with(0, None)
        self._moving = [n for n in self._moving if n not in gone]
        drop([n for n in gone if n.graph is not None])

    def _size_outside(self, value: ir.Value, start: int, end: int) -> ir.Value | None:
        dims = list(value.shape or ())[start:end]
        if not is_known_outside(self.op, dims):
            return None
        return self.op.sizes(dims)


def is_known_outside(op: Builder, dims: Sequence[int | ir.SymbolicDim]) -> bool:
    """Whether sizes can be computed in the builder's graph."""
    for dim in dims:
        if isinstance(dim, int):
            continue
        if dim.value is None:
            return False
        try:
            if not all(map(op.find_symbol, sorted(dim.free_symbols()))):
                return False
        except ValueError:
            return False
    return True


def is_random(node: ir.Node) -> bool:
    """Whether a node, or one inside of it, draws random numbers."""
    return any(n.op_type in RANDOM or n.op_type == "Dropout" for n in (node, *inner_nodes(node)))


# ------------------------------------------------------------------------------ copies


def copy(
    op: Builder, node: ir.Node, known: dict[ir.Value, ir.Value], *, again: bool = True
) -> None:
    """Copy a node to the end of the builder's graph; `known` takes its outputs.

    Nodes computed `again` are marked as such.
    """
    suffix, marks = "", node.metadata_props
    if again:
        suffix, marks = "/again", {STAGE: "recompute", SOURCE: node.name or ""}
    made = clone(node, op.names, suffix, marks)
    op.graph.append(made)
    replace_reads(made, known)
    for before, after in zip(node.outputs, made.outputs, strict=True):
        after.const_value = before.const_value
        known[before] = after


def replace_reads(node: ir.Node, known: Mapping[ir.Value, ir.Value]) -> None:
    """Let a node and its subgraphs read other values."""
    for reader in (node, *inner_nodes(node)):
        for slot, value in enumerate(reader.inputs):
            if value is not None and value in known:
                reader.replace_input_with(slot, known[value])
    for graph in _all_subgraphs(node):
        for slot, value in enumerate(graph.outputs):
            if value in known:
                graph.outputs[slot] = known[value]


def _all_subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for graph in subgraphs(node):
        yield graph
        yield from graph.subgraphs()


# --------------------------------------------------------------------- forward outputs


def own(op: Builder, value: ir.Value, taken: Sequence[ir.Value]) -> ir.Value:
    """`value` as an output of the builder's graph: made by a node of it, and no output yet."""
    node = value.producer()
    if node is not None and node.graph is op.graph and value not in taken:
        return value
    return op.Identity(value)


def show(op: Builder, node: ir.Node, graph: ir.Graph, value: ir.Value, shape: ir.Shape) -> ir.Value:
    """Make a value of a forward subgraph an output of its node, the last one."""
    with op.at(None, stage="forward", source="", prefix=node.name or ""), op.inside(graph):
        graph.outputs.append(own(op, value, graph.outputs))
    node.resize_outputs(len(node.outputs) + 1)
    made = node.outputs[-1]
    made.name = op.names.fresh(f"{node.name}/{value.name}")
    made.type, made.shape = value.type, shape
    return made
