"""Barriers: recomputed nodes wait for a gradient, and no runtime merges them with the originals.

A clone reads `x` as it was read in the forward pass, so that common-subexpression elimination puts
the original back, and a scheduler may run it as early as that.  Behind a barrier it reads

    Reshape(x, Shape(x) + 0 · Σ IsNaN(g₀))    where g₀ = Reshape(g, [-1])[:min(Size(g), 1)]

which is `x`, bit for bit and without a copy, but cannot be known to be before `g` is there.  The
sum makes a scalar of one element, or of none where `g` is empty, or of those of several gradients.
Integers that may be a shape read `x + 0 · Σ …` instead.

A layout before any recomputed node does not wait, and its readers do: onnxruntime merges
consecutive Reshapes, and with them a barrier, even if one is the shape that the other reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.metadata import BARRIER
from gradtool.graph.predicates import is_float, may_be_tensor
from gradtool.graph.prune import inner_nodes
from gradtool.graph.reads import reads
from gradtool.graph.stages import is_clone
from gradtool.passes.ort_allocator.control_edges import (
    LAYOUTS,
    before,
    behind,
    bytes_of,
    depths_of,
    is_backward,
    is_large,
    may_pass,
    may_wait,
    passing,
    zero_of,
)
from gradtool.passes.ort_allocator.scheduling_edges import (
    hold_constants,
    hold_forward,
    hold_gradients,
)
from gradtool.text.words import some

WEIGHTS = "clones that read weights only are constants to other runtimes"
NOTHING_BEFORE = "clones with nothing before them that could be waited for run when they like"


def keep_twins_apart(model: ir.Model) -> None:
    """Let a small result of backward wait for an equal one before it.

    Two branches that begin at one gradient sum it alike, for their biases.  onnxruntime lets all
    read the first of the sums; the second is then a result that nobody waits for, runs at the very
    end, and its operands are held.
    """
    op, depths = Builder(model), depths_of(model.graph)
    known: dict[Hashable, ir.Node] = {}
    for node in list(model.graph):
        key = _key(node) if is_backward(node) and may_wait(node) else None
        first = node if key is None else known.setdefault(key, node)
        (value, *_), result = node.inputs or (None,), first.outputs[0]
        if first is node or value is None or value not in depths or not is_large(value):
            continue
        node.replace_input_with(0, behind(op, node, value, [result]))


def _key(node: ir.Node) -> Hashable | None:
    """A key common to nodes of equal results; None of one whose result is no small tensor."""
    (made, *others) = node.outputs
    is_small = may_be_tensor(made) and is_float(made) and bytes_of(made) and not is_large(made)
    if (
        others
        or not is_small
        or any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values())
    ):
        return None
    given = tuple(sorted((name, str(a.value)) for name, a in node.attributes.items()))
    return node.op_identifier(), tuple(node.inputs), given


def hold_back(model: ir.Model) -> None:
    """Let each node of backward wait for the deepest gradient before it, in place.

    Other runtimes compute postponed nodes when their operands are there, and hold the results.
    Nodes that depend on this, or read nothing large, run when they are due whatever happens.
    """
    op, depths = Builder(model), depths_of(model.graph)
    nodes = list(model.graph)
    places = {value: place for place, node in enumerate(nodes) for value in node.outputs}
    deepest: ir.Value | None = None
    zero: ir.Value | None = None
    for node in nodes:
        if not is_backward(node) or BARRIER in node.metadata_props:
            continue
        able = [v for v in node.inputs if v is not None and v in depths and may_pass(v)]
        last = max((places.get(v, -1) for v in reads(node) if v in depths), default=-1)
        if deepest is not None and able and may_wait(node) and last < places[deepest]:
            with before(op, node, [deepest]):
                zero = zero_of(op, [deepest]) if zero is None else zero
                same = passing(op, able[0], zero)
            node.replace_input_with(node.inputs.index(able[0]), same)
        for value in node.outputs:
            is_deeper = deepest is None or depths.get(value, -1) >= depths[deepest]
            if value in depths and may_pass(value) and is_deeper:
                deepest, zero = value, None


def barrier(model: ir.Model, *, say: Callable[[str], object] | None = None) -> int:
    """Let clones wait, in place, and then other late nodes (see `late`).

    Returns the number of waiting groups of clones.
    """
    count = _hold_clones(model, say)
    if count:
        keep_twins_apart(model)
        hold_constants(model)
        hold_gradients(model)
        hold_forward(model)
        hold_back(model)
    return count


def _hold_clones(model: ir.Model, say: Callable[[str], object] | None) -> int:
    """Let each connected group of clones wait.  Returns how many groups do.

    They wait for the deepest value before them, and for the results of the model that are computed
    between the clones before and them: runtimes put off weight gradients to the end, and hold their
    operands.  `say` is told which groups cannot wait, a line for each reason: nothing is computed
    from the inputs before them, or they read weights only, of which runtimes make constants.
    """
    graph = model.graph
    depths = depths_of(graph)
    op = Builder(model)
    count = 0
    left: dict[str, list[str]] = {}
    awaited: list[ir.Value] = []
    for run in list(_runs(graph)):
        zero: ir.Value | None = None
        waited = False
        for group in _connected(_waiting(run.clones)):
            passed = _passed(group)
            if awaited and passed:
                with before(op, group[0], awaited):
                    zero = zero_of(op, awaited) if zero is None else zero
                for value, readers in passed.items():
                    _set(op, readers, value, zero, awaited)
                count, waited = count + 1, True
            else:
                reason = NOTHING_BEFORE if passed else WEIGHTS
                left.setdefault(reason, []).append(group[0].name or "")
        awaited = _awaited(awaited[:1], [] if waited else awaited, run.after, depths)
    for reason, names in left.items():
        if say is not None:
            say(f"{reason}, so no barrier is before {some(names, 3)}")
    return count


@dataclass(frozen=True)
class _Run:
    """Consecutive clones, and the results of other nodes from there to the next clone."""

    clones: list[ir.Node]
    after: list[ir.Value]


def _runs(graph: ir.Graph) -> Iterator[_Run]:
    """A graph in file order, cut before each clone behind another node."""
    clones: list[ir.Node] = []
    for cloned, nodes in itertools.groupby(list(graph), is_clone):
        if cloned:
            clones = list(nodes)
        else:
            yield _Run(clones, [v for node in nodes for v in node.outputs])
            clones = []
    yield _Run(clones, [])


def _waiting(clones: list[ir.Node]) -> list[ir.Node]:
    """The clones but for layouts of values that none of them computes."""
    made: set[ir.Value] = set()
    waiting = []
    for node in clones:
        data = node.inputs[0] if node.inputs else None
        if node.op_type not in LAYOUTS or data in made:
            waiting.append(node)
            made |= set(node.outputs)
    return waiting


def _connected(clones: list[ir.Node]) -> list[list[ir.Node]]:
    """Clones in groups connected by their reads of each other, in the order given."""
    parents = {node: node for node in clones}

    def root(node: ir.Node) -> ir.Node:
        while parents[node] is not node:
            parents[node] = node = parents[parents[node]]
        return node

    for node in clones:
        for value in reads(node):
            producer = value.producer()
            if producer in parents:
                parents[root(node)] = root(producer)
    groups: dict[ir.Node, list[ir.Node]] = {}
    for node in clones:
        groups.setdefault(root(node), []).append(node)
    return list(groups.values())


def _passed(group: list[ir.Node]) -> dict[ir.Value, list[ir.Node]]:
    """The tensors, other than weights, read by a group and not computed there, and their readers.

    The shape of a layout is none of them: its operand has waited.
    """
    own = {v for node in group for v in node.outputs}
    found: dict[ir.Value, list[ir.Node]] = {}
    for node in group:
        for value in dict.fromkeys(reads(node)) if node.op_type not in LAYOUTS else ():
            if value not in own and not _is_weight(value) and may_be_tensor(value):
                found.setdefault(value, []).append(node)
    return found


def _is_weight(value: ir.Value) -> bool:
    node = value.producer()
    if node is not None:
        return node.op_type == "Constant"
    return value.is_initializer()


def _awaited(
    deepest_before: list[ir.Value],
    pending: list[ir.Value],
    after: list[ir.Value],
    depths: dict[ir.Value, int],
) -> list[ir.Value]:
    """The values to wait for: the deepest, the last of them, and results nobody has waited for.

    Results are among `after`, and among `pending` where no clone has waited since.

    Readers of the deepest come later, else they were deeper; and results stay.  So waiting keeps
    nothing alive.  A test for NaN needs floats.
    """
    able = [v for v in after if v in depths and is_float(v) and may_be_tensor(v)]
    deepest = max((*reversed(able), *deepest_before), key=depths.__getitem__, default=None)
    chosen = [v for v in (*pending, *able) if v.is_graph_output()]
    return chosen if deepest is None else list(dict.fromkeys([deepest, *chosen]))


def _set(
    op: Builder,
    readers: Sequence[ir.Node],
    value: ir.Value,
    zero: ir.Value,
    awaited: Sequence[ir.Value],
) -> None:
    """Let clones read a value through a barrier."""
    with before(op, readers[0], awaited):
        same = passing(op, value, zero)
    members = {n for node in readers for n in (node, *inner_nodes(node))}
    for use in list(value.uses()):
        if use.node in members:
            use.node.replace_input_with(use.idx, same)
