"""Loops of a training graph and their gradients, and copies of their turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.functions.calls import return_instead, take_over
from gradtool.gradients._turns import Track, Turns, formal_like
from gradtool.gradients.bodies import copy, own
from gradtool.graph import walk
from gradtool.graph.known import as_node
from gradtool.graph.metadata import SOURCE
from gradtool.graph.predicates import is_tensor
from gradtool.graph.prune import drop
from gradtool.graph.randomness import draws
from gradtool.graph.reads import reads
from gradtool.graph.stages import stage


@dataclass(frozen=True)
class Pair:
    """A loop and the Scan of its gradient, which reads what the turns stacked, the last one first.

    `stacks` are rows of `forward` that nothing else reads, by place, each with the place of the
    array of `backward` that it is.  `states` are those that hold a state as it enters a turn.
    """

    forward: Turns
    backward: Turns
    stacks: Mapping[int, int]
    states: Mapping[int, int]

    @property
    def name(self) -> str:
        """The name of the gradient's node."""
        return self.backward.node.name or ""

    @property
    def count(self) -> int | ir.SymbolicDim:
        """The number of turns."""
        row = next(iter(self.stacks))
        shape = self.forward.node.outputs[len(self.forward.states) + row].shape
        assert shape is not None  # noqa: S101 - see `_pair`
        return shape[self.forward.written[row].axis]

    def again(self) -> tuple[list[ir.Node], set[ir.Value]]:
        """The nodes of a turn whose results are stacked, or lead there, and all that these read."""
        body, rows = self.forward.body, self.forward.rows
        return reach(body, [rows[row] for row in self.stacks if row not in self.states])


def pairs(model: ir.Model) -> list[Pair]:
    """The loops whose turns can be taken again, those in bodies as well."""
    found = []
    for graph, nodes in walk.by_graph(model.graph):
        for node in nodes:
            if node.op_type == "Scan" and _is_loop(node) and stage(node) == "backward":
                makers = dict.fromkeys(v.producer() for v in node.inputs if v is not None)
                made = (_pair(n, node) for n in makers if n is not None and n.graph is graph)
                found += [pair for pair in made if pair is not None][:1]
    return found


def _is_loop(node: ir.Node) -> bool:
    return node.op_type in ("Loop", "Scan") and not node.domain and not node.device_configurations


def _pair(forward: ir.Node, backward: ir.Node) -> Pair | None:
    """The pair of two nodes, where the second reads what only it reads of the first."""
    if not _is_loop(forward) or stage(forward) == "backward" or draws(forward):
        return None
    f, b = Turns.of(as_node(forward)), Turns.of(as_node(backward))
    if not all(map(_is_sized, (*f.formal, *f.slices, *f.rows, *b.formal, *b.slices, *b.rows))):
        return None
    stacks = {}
    for row, value in enumerate(forward.outputs[len(f.states) :]):
        uses = value.uses()
        if len(uses) != 1 or value.is_graph_output() or value.shape is None:
            continue
        (use,) = uses
        place = use.idx - len(b.states)
        reverse = use.node is backward and f.written[row].backwards != b.read[place].backwards
        if reverse:
            stacks[row] = place
    held = {row: _state(f, row) for row in stacks}
    states = {row: state for row, state in held.items() if state is not None}
    return Pair(f, b, stacks, states) if stacks else None


def _is_sized(value: ir.Value) -> bool:
    """Whether a value is a tensor whose sizes are known, or have names."""
    if not is_tensor(value) or value.shape is None or value.dtype is None:
        return False
    return all(isinstance(dim, int) or dim.value is not None for dim in value.shape)


def _state(turns: Turns, row: int) -> int | None:
    """The state that a row holds as it enters a turn; None if it is something else."""
    value: ir.Value | None = turns.rows[row]
    node = turns.rows[row].producer()
    if node is not None and node.op_type == "Identity" and node.graph is turns.body:
        value = node.inputs[0]
    return turns.formal.index(value) if value in turns.formal else None


def reach(body: ir.Graph, wanted: Sequence[ir.Value]) -> tuple[list[ir.Node], set[ir.Value]]:
    """The nodes of a body that values come from, and all that these read."""
    needed, nodes = set(wanted), []
    for node in reversed(body):
        if not needed.isdisjoint(node.outputs):
            nodes.append(node)
            needed.update(reads(node))
    return nodes[::-1], needed


# ------------------------------------------------------------------------------ copies


def turn(
    op: Builder,
    body: ir.Graph,
    known: dict[ir.Value, ir.Value],
    wanted: Sequence[ir.Value],
    *,
    again: bool = False,
) -> list[ir.Value]:
    """Copy the nodes that values of a body come from to the builder's graph; what those are there.

    `known` says what stands there for the inputs of the body, and takes what is computed.
    """
    for node in reach(body, wanted)[0]:
        copy(op, node, known, again=again)
    return [known.get(v, v) for v in wanted]


def taken(
    op: Builder,
    turns: Turns,
    count: int,
    states: Sequence[ir.Value | None],
    arrays: Sequence[ir.Value],
    first: ir.Value | None,
    rows: Sequence[int],
    *,
    again: bool = False,
) -> list[ir.Value]:
    """Emit so many turns of a loop: states after the last one, and some of the rows, stacked.

    They begin with these states, at the turn `first` of a Loop; a Scan reads these arrays.
    """
    formal = [formal_like(op, "state", v) for v in turns.formal]
    known = dict(zip(turns.formal, formal, strict=True))
    wanted = [*turns.results, *(turns.rows[row] for row in rows)]
    if turns.number is None:
        slices = [formal_like(op, "slice", v) for v in turns.slices]
        known |= zip(turns.slices, slices, strict=True)
        with op.body([*formal, *slices]) as graph:
            give(op, graph, turn(op, turns.body, known, wanted, again=again))
        written = [turns.written[row] for row in rows]
        return scan(op, graph, states, arrays, turns.read, written)
    number = op.formal("turn", [], ir.DataType.INT64)
    going = op.formal("going", [], ir.DataType.BOOL)
    known[turns.body.inputs[1]] = going
    with op.body([number, going, *formal]) as graph:
        known[turns.number] = number if first is None else op.Add(number, first)
        wanted = [turns.body.outputs[0], *wanted]
        give(op, graph, turn(op, turns.body, known, wanted, again=again))
    condition = turns.node.inputs[1]
    most = np.asarray(count, np.int64)
    return listed(op.Loop(most, condition, *states, body=graph, outputs=len(wanted) - 1))


def give(op: Builder, graph: ir.Graph, values: Sequence[ir.Value]) -> None:
    """Make values the outputs of the graph that is built."""
    for value in values:
        graph.outputs.append(own(op, value, graph.outputs))


def scan(
    op: Builder,
    body: ir.Graph,
    states: Sequence[ir.Value | None],
    arrays: Sequence[ir.Value],
    read: Sequence[Track],
    written: Sequence[Track],
) -> list[ir.Value]:
    """Emit a Scan: its states after the last turn, and its rows."""
    return listed(op.Scan(
        *states, *arrays, body=body, outputs=len(body.outputs), num_scan_inputs=len(arrays),
        scan_input_axes=[t.axis for t in read],
        scan_input_directions=[t.backwards for t in read],
        scan_output_axes=[t.axis for t in written] or None,
        scan_output_directions=[t.backwards for t in written] or None,
    ))  # fmt: skip


def listed(made: ir.Value | Sequence[ir.Value]) -> list[ir.Value]:
    """The outputs of a node that was emitted."""
    return [made] if isinstance(made, ir.Value) else list(made)


@contextmanager
def in_place_of(op: Builder, node: ir.Node) -> Iterator[None]:
    """Emit before a node, on behalf of what it is from."""
    source, name = node.metadata_props.get(SOURCE, ""), node.name or ""
    with op.at(node, stage=stage(node), source=source, prefix=name):
        yield


def replace(nodes: Sequence[ir.Node], old: Sequence[ir.Value], new: Sequence[ir.Value]) -> None:
    """Let values take the place of those of nodes, which go."""
    take_over(old, new)
    return_instead(dict(zip(old, new, strict=True)))
    drop(nodes)
