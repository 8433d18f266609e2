"""Loops of a training graph and their gradients, and copies of their turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph import walk
from gradtool.graph.metadata import SOURCE
from gradtool.graph.predicates import is_tensor
from gradtool.graph.prune import drop
from gradtool.graph.randomness import draws, may_draw
from gradtool.graph.reads import reads
from gradtool.graph.stages import stage
from gradtool.graph.typed import as_node
from gradtool.ops.composites.calls import return_instead, take_over
from gradtool.ops.control.gradient_bodies import copy, own
from gradtool.ops.control.gradient_turns import Track, Turns, formal_like


@dataclass(frozen=True)
class Pair:
    """A loop and its gradient, which reads the stacks of turns, the last one first.

    `stacks` are rows of `forward` that nothing else reads, by place, each with its read in a turn
    of `backward`: a slice of a Scan, or a Gather of a Loop at `index`.  `held` are residuals needed
    to recompute a turn: states as they enter it, and numbers drawn at random in it (one of
    `drawn`).
    """

    forward: Turns
    backward: Turns
    stacks: Mapping[int, ir.Value]
    held: Mapping[int, ir.Value]
    drawn: tuple[ir.Value, ...]
    index: ir.Value | None = None

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

    @property
    def most(self) -> int:
        """The most turns recomputed at once: one if they are open, or draw at random."""
        whole = self.index is None and not self.drawn
        return self.count if isinstance(self.count, int) and whole else 1

    @property
    def inside(self) -> list[int]:
        """The rows computed by a turn."""
        return [row for row in self.stacks if row not in self.held]

    @property
    def missing(self) -> list[ir.Value]:
        """The values needed to recompute a turn and not stacked."""
        f, held = self.forward, set(self.held.values())
        _, read = self.again()
        needed = (*f.formal, *self.drawn, *(() if f.number is None else (f.number,)))
        return [v for v in needed if v in read and v not in held]

    def again(self) -> tuple[list[ir.Node], set[ir.Value]]:
        """The nodes of a turn whose results are stacked, or lead there, and all their reads."""
        rows = [self.forward.rows[row] for row in self.inside]
        return reach(self.forward.body, rows, {*self.drawn})


def pairs(model: ir.Model, name: str | None = None) -> list[Pair]:
    """The loops with turns to recompute, those in bodies as well; or the one of a name."""
    found = []
    for graph, nodes in walk.by_graph(model.graph):
        for node in nodes:
            asked = name is None or node.name == name
            if asked and _is_loop(node) and stage(node) == "backward":
                makers = dict.fromkeys(v.producer() for v in reads(node))
                made = (_pair(n, node) for n in makers if n is not None and n.graph is graph)
                found += [pair for pair in made if pair is not None][:1]
    return found


def _is_loop(node: ir.Node) -> bool:
    return node.op_type in ("Loop", "Scan") and not node.domain and not node.device_configurations


def _pair(forward: ir.Node, backward: ir.Node) -> Pair | None:
    """The pair of two nodes, if the second is the only reader of its reads of the first."""
    if not _is_loop(forward) or stage(forward) == "backward":
        return None
    f, b = Turns.of(as_node(forward)), Turns.of(as_node(backward))
    if not all(map(_is_sized, (*f.formal, *f.slices, *f.rows, *b.formal, *b.slices, *b.rows))):
        return None
    index = _index(b)
    stacks = {}
    for row, value in enumerate(forward.outputs[len(f.states) :]):
        uses = tuple(value.uses())
        if len(uses) == 1 and not value.is_graph_output() and value.shape is not None:
            read = _read(f.written[row], b, *uses[0], index)
            if read is not None:
                stacks[row] = read
    chance = [node for node in f.body if draws(node)]
    if not stacks or not all(map(may_draw, chance)):
        return None
    drawn = tuple(v for node in chance for v in node.outputs)
    whole = {row: _source(f, row) for row in stacks}
    held = {row: v for row, v in whole.items() if v in f.formal or v in drawn}
    return Pair(f, b, stacks, held, drawn, index)


def _index(turns: Turns) -> ir.Value | None:
    """The index at which the gradient of a Loop gathers reads of its turns: the turn of forward."""
    if turns.number is None:
        return None
    gathers = (n for n in turns.body if n.op_type == "Gather" and not n.domain)
    return next((as_node(n).inputs[1] for n in gathers if _is_reverse(n.inputs[1], turns)), None)


def _is_reverse(value: ir.Value | None, turns: Turns) -> bool:
    """Whether a value is the last turn less the current one."""
    node = None if value is None else value.producer()
    return node is not None and node.op_type == "Sub" and node.inputs[1] is turns.number


def _read(
    track: Track, turns: Turns, node: ir.Node, slot: int, index: ir.Value | None
) -> ir.Value | None:
    """The read of a row in a turn of a gradient, at its one use; None if of another turn."""
    if index is None:
        place = slot - len(turns.states)
        is_scanned = node is turns.node and turns.read[place].backwards != track.backwards
        return turns.slices[place] if is_scanned else None
    is_gathered = node.op_type == "Gather" and node.graph is turns.body and slot == 0
    by_turn = is_gathered and node.inputs[1] is index
    return node.outputs[0] if by_turn and node.attributes.get_int("axis", 0) == 0 else None


def _is_sized(value: ir.Value) -> bool:
    """Whether a value is a tensor whose sizes are known, or have names."""
    if not is_tensor(value) or value.shape is None or value.dtype is None:
        return False
    return all(isinstance(dim, int) or dim.value is not None for dim in value.shape)


def _source(turns: Turns, row: int) -> ir.Value:
    """The source of a row in a body, through copies."""
    value = turns.rows[row]
    node = value.producer()
    if node is None or node.op_type != "Identity" or node.graph is not turns.body:
        return value
    return as_node(node).inputs[0]


def reach(
    body: ir.Graph, wanted: Sequence[ir.Value], given: AbstractSet[ir.Value] = frozenset()
) -> tuple[list[ir.Node], set[ir.Value]]:
    """The producing nodes of a body's values other than through `given`, and all their reads."""
    needed, nodes = set(wanted), []
    for node in reversed(body):
        if any(v in needed and v not in given for v in node.outputs):
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
    """Copy the producing nodes of a body's values to the builder's graph; return the copies.

    `known` has the copies of values of the body, its inputs among them, and takes the computed
    ones.
    """
    for node in reach(body, wanted, known.keys())[0]:
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
    """Make values the outputs of the current graph."""
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
    """The outputs of an emitted node."""
    return [made] if isinstance(made, ir.Value) else list(made)


@contextmanager
def in_place_of(op: Builder, node: ir.Node) -> Iterator[None]:
    """Emit before a node, on behalf of its source."""
    source, name = node.metadata_props.get(SOURCE, ""), node.name or ""
    with op.at(node, stage=stage(node), source=source, prefix=name):
        yield


def replace(nodes: Sequence[ir.Node], old: Sequence[ir.Value], new: Sequence[ir.Value]) -> None:
    """Replace results of nodes by values, and drop the nodes."""
    take_over(old, new)
    return_instead(dict(zip(old, new, strict=True)))
    drop(nodes)


def name_like(made: Sequence[ir.Value], like: ir.Node, suffix: str = "") -> None:
    """Name the producer of replacement values like a node; of several producers the last."""
    node = made[0].producer()
    assert node is not None  # noqa: S101 - it was emitted
    name = f"{like.name}{suffix}"
    like.name, node.name = like.name if suffix else None, name
