"""A forward graph whose inputs are fixed at one example, opened to any number of them.

Exporters write the batch of their example into constants: the target of a Reshape, the sizes of a
Resize, the first state of a recurrent layer, a class token that was expanded.  The axis of the
examples is followed through the graph as it is (`batch_axis`); constants that hold its size are
written anew, and values the same for all examples are expanded where an operator does not broadcast
it.  Then the examples are followed through the result: each value needs its own axis of them, and
no operator may mix them but a loss and the statistics of a normalization.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, UsageError
from gradtool.graph import constants, walk
from gradtool.graph.training_info import TrainingInfo
from gradtool.passes.batch_axis import BatchAxis
from gradtool.passes.batch_rules import COUNTED
from gradtool.passes.batch_states import Batch, Fixed, Mixed, Rows
from gradtool.shapes import infer

SYMBOL = "batch"
RECURRENT = ("RNN", "LSTM", "GRU")
ALIGNED = ("Concat", "GatherElements", "ScatterElements")  # whose operands are not broadcast

Axes = dict[str, int | None]
MOST_TRIES, MOST_STEPS = 64, 40_000  # of ways to follow examples, and through so many nodes in all


def is_fixed_at_one(model: ir.Model) -> bool:
    """Whether the first input with axes leads with 1 in a forward graph without an open batch."""
    given = _inputs(model)
    symbols = [str(d) for v in given for d in v.shape or () if isinstance(d, ir.SymbolicDim)]
    return (
        not TrainingInfo.of(model).is_training_graph
        and bool(given)
        and given[0].shape is not None
        and given[0].shape[0] == 1
        and not any(SYMBOL in name.lower() for name in symbols)
    )


def open_batch(model: ir.Model) -> None:
    """Let inputs of a graph fixed at one example have any number, the symbol `batch`.

    Types and shapes are inferred again.  Where the graph cannot be opened it is not usable further.

    Raises:
        UsageError: naming the input, and the first node in the way.
    """
    infer(model)
    given = _inputs(model)
    batch = _followed(model, given)
    for value in given:
        axis = batch.axes[value.name or ""]
        if axis is not None and value.shape is not None:
            value.shape = ir.Shape(
                [ir.SymbolicDim(SYMBOL) if a == axis else d for a, d in enumerate(value.shape)]
            )
    op = Builder(model, stage="forward")
    for node in list(walk.nodes(model.graph)):
        _rewrite(op, node, batch, given[0])
    why = _in_the_way(model, batch.axes)
    if why is not None:
        raise UsageError(f"input {given[0].name!r} is fixed at batch 1 in the model, by {why}")


def _inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs with axes and without a default."""
    return [v for v in model.graph.inputs if v.const_value is None and v.shape]


Choice = tuple[tuple[int, ...], tuple[int, ...], Rows]  # of a Reshape: its sizes, and its examples


class _One(BatchAxis):
    """A graph of one example, its batch axis followed by the `chosen` one of several.

    `choices` are the choices met, by their number of answers.
    """

    def __init__(self, model: ir.Model, axes: Axes, chosen: Mapping[Choice, int]) -> None:
        self.axes, self._chosen = axes, chosen
        self.choices: dict[Choice, int] = {}
        super().__init__(model.graph, axes, None, 1, ())
        nodes = list(walk.nodes(model.graph))
        mixing = (index for index, node in enumerate(nodes) if _mixes(self, node))
        self.reached = next(mixing, len(nodes))
        self.is_whole = self.reached == len(nodes)

    def choose(self, node: ir.Node, found: Sequence[Rows]) -> Rows:
        """The most likely answer, or the chosen one.

        It is an axis of size 1, else one whose size is left open; else examples are beside the axes
        behind them (heads), but where axes are merged beside the axes before them (positions).
        """
        if len(found) == 1:
            return found[0]
        target = constants.integers(node.inputs[1]) if node.op_type == "Reshape" else None
        old, new = (tuple(self.dims(v)) for v in (node.inputs[0], node.outputs[0]) if v is not None)

        def likely(rows: Rows) -> tuple[bool, bool, int]:
            beside = rows.inner if len(new) < len(old) else rows.outer
            is_open = target is not None and target[rows.axis] == -1
            return rows.outer * rows.inner > 1, not is_open, beside

        choice = old, new, found[0]
        self.choices[choice] = len(found)
        return sorted(found, key=likely)[self._chosen.get(choice, 0)]


def _followed(model: ir.Model, given: Sequence[ir.Value]) -> _One:
    """The axes of size 1 by which examples are followed furthest.

    For inputs it is the first one, unless of another meaning, as in a state of layers by examples.
    """
    leads = {v.name or "": 0 if v.shape is not None and v.shape[0] == 1 else None for v in given}
    best, chosen = _One(model, leads, {}), dict[Choice, int]()
    tries = iter(range(min(MOST_TRIES, MOST_STEPS // max(best.reached, 1))))
    is_better = True
    while is_better and not best.is_whole:
        is_better = False
        others = [(best.axes | {v.name or "": axis}, chosen) for v in given[1:]
                  for axis in (*_ones(v), None)]  # fmt: skip
        flips = [{c: i} for c, n in best.choices.items() for i in range(n)]
        pairs = [a | b for a, b in combinations(flips, 2)]
        for axes, choice in [*others, *((best.axes, chosen | each) for each in (*flips, *pairs))]:
            if next(tries, None) is None:
                break
            tried = _One(model, axes, choice)
            if tried.reached > best.reached:
                best, chosen, is_better = tried, choice, True
                break
    return best


def _ones(value: ir.Value) -> list[int]:
    """The axes of size 1."""
    return [axis for axis, size in enumerate(value.shape or ()) if size == 1]


def _mixes(batch: Batch, node: ir.Node) -> bool:
    """Whether examples are mixed first by this node.

    A loss that counts labels may, and statistics of a normalization, which are no first output.
    """
    made = batch.of(node.outputs[0]) if node.outputs else None
    if not isinstance(made, Mixed) or made.why.endswith(COUNTED):
        return False
    return not any(isinstance(batch.of(v), Mixed) for v in node.inputs)


# ------------------------------------------------------------------------------- rewriting


def _rewrite(op: Builder, node: ir.Node, batch: Batch, counted: ir.Value) -> None:
    """Write a node for any number of examples, counted by the first axis of `counted`."""
    state = batch.of(node.outputs[0]) if node.outputs else None
    if node.op_type == "Reshape" and isinstance(state, Rows):
        _open_target(op, node, batch.of(node.inputs[0]), state)
    elif node.op_type == "Resize" and isinstance(state, Rows):
        _leave_out(op, node, state.axis)
    for slot, axis in _unlike(node, batch):
        value = node.inputs[slot]
        if value is None or node.graph is not op.root or (value.shape or [0])[axis] != 1:
            continue
        ones = [1] * len(value.shape or ())
        with op.at(node, stage="forward", source="", prefix=f"{node.name}/batch"):
            sizes = [op.constant(ones[:axis]), op.Shape(counted, start=0, end=1),
                     op.constant(ones[axis + 1 :])]  # fmt: skip
            known = [each for each, part in zip(sizes, (axis, 1, len(ones) - axis - 1), strict=True)
                     if part]  # fmt: skip
            target = known[0] if len(known) == 1 else op.Concat(*known, axis=0)
            node.replace_input_with(slot, op.Expand(value, target))


def _unlike(node: ir.Node, batch: Batch) -> list[tuple[int, int]]:
    """Operands shared by all examples where an operator takes one for each; their axes."""
    states = [batch.of(v) for v in node.inputs]
    fixed = [slot for slot, s in enumerate(states) if isinstance(s, Fixed) and node.inputs[slot]]
    rows = next((s for s in states if isinstance(s, Rows)), None)
    if node.op_type in RECURRENT and rows is not None:
        axis = 0 if node.attributes.get_int("layout", 0) else 1
        places = {4: 0, 5: axis, 6: axis}
        return [(slot, places[slot]) for slot in fixed if slot in places]
    if node.op_type in ALIGNED and rows is not None:
        return [(slot, rows.axis) for slot in fixed]
    bodies = walk.subgraphs(node)
    if node.op_type not in ("Loop", "Scan") or not bodies:
        return []
    held = len(node.inputs) - node.attributes.get_int("num_scan_inputs", 0)
    inner = [batch.of(v) for v in bodies[0].inputs]
    return [(slot, s.axis) for slot in fixed if slot < held and isinstance(s := inner[slot], Rows)]


def _open_target(op: Builder, node: ir.Node, state: object, made: Rows) -> None:
    """Give a Reshape to a known shape as many examples as its operand."""
    target, shape = constants.integers(node.inputs[1]), node.outputs[0].shape
    if target is None or shape is None or target[made.axis] in (-1, 0):
        return
    same = isinstance(state, Rows) and state == made
    known = [d if isinstance(d, int) else None for d in shape]
    known[made.axis] = -1
    if None not in known:
        sizes = known
    elif same and not node.attributes.get_int("allowzero", 0):
        sizes = [0 if a == made.axis else size for a, size in enumerate(target)]
    else:
        return
    node.replace_input_with(1, op.constant(np.asarray(sizes, np.int64)))


def _leave_out(op: Builder, node: ir.Node, axis: int) -> None:
    """Let a Resize to known sizes leave the axis of the examples as it is."""
    sizes = constants.integers(node.inputs[3]) if len(node.inputs) > 3 else None
    if sizes is None or "roi" in node.attributes.get_string("coordinate_transformation_mode", ""):
        return
    rank = len(node.outputs[0].shape or ())
    axes = [a % rank for a in node.attributes.get_ints("axes", range(rank))]
    kept = [(a, size) for a, size in zip(axes, sizes, strict=True) if a != axis]
    node.attributes["axes"] = ir.AttrInt64s("axes", [a for a, _ in kept])
    node.replace_input_with(3, op.constant([size for _, size in kept]))


# ------------------------------------------------------------------------------- verifying


def _in_the_way(model: ir.Model, axes: Axes) -> str | None:
    """The obstacle to keeping examples of an opened graph apart."""
    try:
        infer(model)
    except ModelError as error:
        return f"what no other batch fits: {error}"
    batch = BatchAxis(model.graph, axes, SYMBOL, None, ())
    for node in walk.nodes(model.graph):
        if _mixes(batch, node):
            state = batch.of(node.outputs[0])
            assert isinstance(state, Mixed)  # noqa: S101 - it mixes
            return state.why
    return None
