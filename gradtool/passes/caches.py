"""Key/value caches of decoders, taken as empty for training: no past, nothing to pass on.

An If of which one branch alone reads caches is the other branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import ModelError, UsageError
from gradtool.graph import walk
from gradtool.graph.metadata import ALIASES
from gradtool.graph.predicates import is_used
from gradtool.graph.prune import prune
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.graph.typed import Node
from gradtool.io import constants, equations, symbols
from gradtool.passes import lower_contrib
from gradtool.passes.cache_search import (
    ATTENTION,
    PAST,
    SAME,
    Cache,
    find,
    is_layout,
    perm_of,
    sizes_of,
)
from gradtool.shapes import infer
from gradtool.text.words import count

OF_CONDITIONS = (*SAME, "Not", "Reshape", "Squeeze")

Shapes = Mapping[str, ir.Shape | None]
Size = int | str  # a number, or the symbol or the expression that it is as well


def take_as_empty(model: ir.Model, said: Shapes, *, inferred: bool) -> tuple[str, ...]:
    """Empty the caches of a model, in place; returns lines for people.

    `said` are the shapes declared for outputs; `inferred` where those of all values are known.
    They are to be inferred afterwards.  Symbols of inputs that follow then are replaced, and noted:
    0 for the length of the past, that of the sequence for their sum.  Inputs that are not read any
    more are gone, and noted as fixed.
    """
    caches = [] if _is_ours(model) else find(model.graph)
    if not caches:
        return ()
    if not inferred:
        infer(model)
    if not all(map(_is_joined_alone, caches)):  # whose sizes have to be known
        equations.settle(model)
    lines = _without_branches(model, caches)
    aliases = _emptied(model, caches)
    aliases |= _resized(model, caches, said, aliases)
    grown = {cache.after for cache in caches}
    for value in [v for v in model.graph.outputs if v.name in grown]:
        model.graph.outputs.remove(value)
    prune(model, spare=False)
    model.meta[ALIASES] = aliases
    inputs, outputs = (count(len(caches), what) for what in ("input", "output"))
    line = f"cache: {inputs} taken as empty, {outputs} dropped; written back in the result"
    return (line, *lines)


def keep(model: ir.Model, said: Shapes, *, inferred: bool) -> None:
    """Leave the caches of a model, whose lengths add up to those of the grown ones, in place.

    Raises:
        UsageError: the model is a forward one, and has none.
    """
    caches = [] if _is_ours(model) else find(model.graph)
    if not caches and not _is_ours(model):
        raise UsageError(
            "--keep-cache: the model has no cache: no output is an input grown along an open axis "
            "by what attention or a Concat adds"
        )
    if caches and not inferred:
        infer(model)
    model.meta[ALIASES] = _resized(model, caches, said, {})


def _is_ours(model: ir.Model) -> bool:
    """Whether a model holds gradients, or is a half of such: its inputs are meant."""
    info = TrainingInfo.of(model)
    return info.is_training_graph or info.saved is not None


def _without_branches(model: ir.Model, caches: Sequence[Cache]) -> list[str]:
    """Make constants of the inputs that decide whether caches are read; a line for each."""
    held = {cache.before for cache in caches}
    values: dict[str, bool] = {}
    for node in model.graph:
        if node.op_type != "If" or node.domain:
            continue
        reading = {
            name: any(v in held for inner in walk.nodes(attr.as_graph()) for v in inner.inputs)
            for name, attr in node.attributes.items()
        }
        source, flipped = _origin(node.inputs[0])
        if source is not None and source.is_graph_input() and sum(reading.values()) == 1:
            values.setdefault(source.name or "", reading["else_branch"] != flipped)
    constants.settle(model, values)
    return [
        f"input {name!r} is taken as {str(value).lower()}: no cache is read then"
        for name, value in values.items()
    ]


def _origin(condition: ir.Value | None) -> tuple[ir.Value | None, bool]:
    """The value that a condition is, and whether it is the opposite."""
    flipped = False
    while condition is not None:
        node = condition.producer()
        if node is None or node.domain or node.op_type not in OF_CONDITIONS:
            break
        condition, flipped = node.inputs[0], flipped != (node.op_type == "Not")
    return condition, flipped


def _is_joined_alone(cache: Cache) -> bool:
    """Whether a cache is read by attention or a Concat as what is grown, and by nothing else."""
    rank = len(sizes_of(cache.before))
    return all(
        _is_past(use.node, use.idx) or _is_concat(use.node, cache.axis, rank)
        for use in cache.before.uses()
    )


def _emptied(model: ir.Model, caches: Sequence[Cache]) -> dict[str, Size]:
    """Let nothing read a cache; the symbols that are 0 then."""
    graph, op = model.graph, Builder(model, stage="forward")
    zeros: dict[str, Size] = {}
    left = [cache for cache in caches if cache.before in graph.inputs]
    for cache in caches:
        size = sizes_of(cache.before)[cache.axis]
        zeros |= {} if isinstance(size, int) or size.value is None else {size.value: 0}
    for cache in left:
        dims = [0 if n == cache.axis else d for n, d in enumerate(sizes_of(cache.before))]
        cache.before.shape = ir.Shape(dims)
        graph.inputs.remove(cache.before)
        _drop_reads(op, cache.before, cache.axis)
    if left:
        fixed = {**TrainingInfo.of(model).fixed, **{c.before.name or "": None for c in left}}
        record(model, fixed=fixed)
    prune(model, spare=False)
    for cache in left:
        if is_used(cache.before):
            _replace(op, cache.before)
    return zeros


def _drop_reads(op: Builder, value: ir.Value, axis: int) -> None:
    """Leave a value, whose size is 0 on an axis, out of what it is joined with along that axis."""
    for node, slot in [(use.node, use.idx) for use in value.uses()]:
        if _is_past(node, slot):
            for each in PAST:  # both are of one length
                node.replace_input_with(each, None)
            op.infer(node)
        elif is_layout(node):
            perm = perm_of(node, len(sizes_of(value)))
            node.outputs[0].shape = ir.Shape([sizes_of(value)[a] for a in perm])
            _drop_reads(op, node.outputs[0], perm.index(axis))
        elif _is_concat(node, axis, len(sizes_of(value))):
            lower_contrib.replace(op, node, _without(value))


def _is_past(node: ir.Node, slot: int) -> bool:
    return (node.domain, node.op_type) in ATTENTION and slot in PAST


def _is_concat(node: ir.Node, axis: int, rank: int) -> bool:
    if node.op_type != "Concat" or node.domain:
        return False
    return node.attributes["axis"].as_int() % rank == axis


def _without(value: ir.Value) -> lower_contrib.Rule:
    """A Concat of everything but a value."""

    def rule(op: Builder, node: Node) -> Sequence[ir.Value]:
        rest = [v for v in node.inputs if v is not value]
        if len(rest) == 1:
            return [op.Identity(rest[0])]
        return [op.Concat(*rest, axis=node.attributes["axis"].as_int())]

    return rule


def _replace(op: Builder, value: ir.Value) -> None:
    """Put an empty tensor of its shape in the place of a cache.

    Raises:
        ModelError: a size of it is decided by nothing else.
    """
    shape, dtype = value.shape, value.dtype
    assert shape is not None and dtype is not None  # noqa: PT018, S101 - an input has both
    name = value.name or "cache"
    try:
        with op.at(next(iter(op.graph)), stage="forward", source="", prefix=name):
            zero = np.zeros(1, dtype.numpy())
            made = op.ConstantOfShape(op.sizes(list(shape)), value=zero)
    except ModelError as error:
        said = f"cache {name!r} cannot be taken as empty (--keep-cache keeps it)"
        raise ModelError(f"{said}: {error}") from error
    value.replace_all_uses_with(made)


def _resized(
    model: ir.Model, caches: Sequence[Cache], said: Shapes, zeros: Mapping[str, Size]
) -> dict[str, Size]:
    """Give inputs the sizes that follow from those of caches; symbols that are others then.

    A size that the file declares for a grown cache is that of what was added.
    """
    grown = {value.name: value.shape for value in model.graph.outputs}
    own = {*zeros, *(str(sizes_of(cache.before)[cache.axis]) for cache in caches)}
    known = set(symbols(model))
    sums: dict[str, int | ir.SymbolicDim] = {}
    for cache in caches:
        before, after = said.get(cache.after), grown.get(cache.after)
        if before is None or after is None:
            continue
        total, size = before[cache.axis], after[cache.axis]
        if isinstance(total, int) or not total.value or total.value in own:
            continue
        if isinstance(size, int) or size.free_symbols() <= known:
            sums[total.value] = size
    past = dict.fromkeys(zeros, 0)
    for value in model.graph.inputs:
        if value.shape is not None and not value.is_initializer():
            value.shape = ir.Shape([_size_now(d, sums, past) for d in value.shape])
    sizes = {name: d if isinstance(d, int) else d.value or "" for name, d in sums.items()}
    return {name: size for name, size in sizes.items() if name.isidentifier() and size != name}


def _size_now(
    dim: int | ir.SymbolicDim, sums: Mapping[str, int | ir.SymbolicDim], past: Mapping[str, int]
) -> int | ir.SymbolicDim:
    """A size of an input, where the past is empty."""
    if isinstance(dim, int) or dim.value is None:
        return dim
    return sums[dim.value] if dim.value in sums else dim.evaluate(past)
