"""Equations of input sizes by nodes: of a product's contraction, a concatenation, and the like.

    x[b, k] @ w[8, 3]               k = 8
    concat(past[c, p, d], z[b, s, 4], axis=1)    c = b, d = 4

A file may call unlike sizes alike, which runtimes do not mind: an axis is decided by its own nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.deciding import is_inferred
from gradtool.graph.metadata import SETTLED
from gradtool.graph.names import label
from gradtool.io import expressions, static_operands
from gradtool.shapes import infer

Dim = int | ir.SymbolicDim
Pair = tuple[Dim, Dim]
Shapes = Sequence[Sequence[Dim] | None]
Found = dict[str, tuple[Dim, ir.Node]]


def settle(model: ir.Model) -> tuple[str, ...]:
    """Set sizes of inputs decided by nodes, in place; returns a line for each.

    Shapes must have been inferred, and are again if any is set.  `model.meta` notes the axes of
    inputs that became numbers.
    """
    said: dict[str, None] = {}
    declared = {v: list(v.shape) for v in model.graph.inputs if v.shape is not None}
    found = _found(model)
    while found:
        before = {value: value.shape for value in model.graph.inputs}
        apart = _taken_apart(model, found)
        if apart:
            found = {n: f for n, f in _inferred(model, before).items() if apart.get(n) in found}
            if not found:  # axes that only together are decided
                _rename(model, {name: ir.SymbolicDim(old) for name, old in apart.items()})
                infer(model)
                break
        names = {name: ir.SymbolicDim(old) for name, old in apart.items() if name not in found}
        _rename(model, names | {name: dim for name, (dim, _) in found.items()})
        said.update(
            dict.fromkeys(
                f"size {apart.get(name, name)!r} of inputs is {dim}: {label(node)} takes no other"
                for name, (dim, node) in found.items()
            )
        )
        found = _inferred(model, before)
    model.meta[SETTLED] = {
        value.name: [n for n, (old, new) in enumerate(zip(dims, value.shape or (), strict=True))
                     if isinstance(new, int) and not isinstance(old, int)]
        for value, dims in declared.items()
    }  # fmt: skip
    return tuple(said)


def _inferred(model: ir.Model, before: Mapping[ir.Value, ir.Shape | None]) -> Found:
    """The next decisions of nodes; none if inputs then are invalid, which are restored."""
    try:
        infer(model)
    except ModelError:
        for value, shape in before.items():
            value.shape = shape
        infer(model)
        return {}
    return _found(model)


def _found(model: ir.Model) -> Found:
    """The sizes decided by one node each: a number, or a symbol of an earlier input."""
    order = {name: n for n, name in enumerate(_counted(model))}
    found: Found = {}
    for node in model.graph:  # inner nodes may never run
        rule = _RULES.get(node.op_type) if node.domain in ("", DOMAIN) else None
        if rule is None or all(_is_static(value) for value in node.inputs):
            continue
        for a, b in rule(node, [None if v is None or v.shape is None else list(v.shape)
                                for v in node.inputs]):  # fmt: skip
            name, dim = _solved(a, b, order)
            if name is not None and name not in found:
                found[name] = dim, node
    return found


def _is_static(value: ir.Value | None) -> bool:
    return value is None or value.shape is None or value.shape.is_static()


def _counted(model: ir.Model) -> Counter[str]:
    """The plain symbols of inputs, in order, and how many axes have each."""
    dims = (dim for value in model.graph.inputs for dim in value.shape or ())
    return Counter(d.value for d in dims if isinstance(d, ir.SymbolicDim) and d.value)


def _solved(a: Dim, b: Dim, order: Mapping[str, int]) -> tuple[str | None, Dim]:
    """The symbol of an input decided by an equation, and its value."""
    nothing = None, 0
    if isinstance(a, int) and isinstance(b, int):
        return nothing
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int) or a.value is None:
        return nothing
    if isinstance(b, int):
        return _linear(a, b, order)
    if b.value is None or a.value == b.value or not {a.value, b.value} <= order.keys():
        return nothing
    first, later = sorted((a.value, b.value), key=lambda name: order[name])
    return later, ir.SymbolicDim(first)


def _linear(dim: ir.SymbolicDim, size: int, order: Mapping[str, int]) -> tuple[str | None, Dim]:
    """The one symbol of a size such as `2*n + 1`, and its value for a known size."""
    names = dim.free_symbols()
    if len(names) != 1:
        return None, 0
    (name,) = names
    parts = expressions.linear(dim._expr, name)  # noqa: SLF001 - as in solving
    if parts is None or name not in order or is_inferred(name):
        return None, 0
    number, rest = divmod(size - int(parts[1]), parts[0])
    return (name, number) if not rest and number >= 0 else (None, 0)


def _taken_apart(model: ir.Model, found: Found) -> dict[str, str]:
    """Split decided symbols shared by several axes into one for each; by new name, the old."""
    counts = _counted(model)
    taken, apart = set(counts), {}
    for value in model.graph.inputs:
        dims = list(value.shape or ())
        for axis, dim in enumerate(dims):
            old = dim.value if isinstance(dim, ir.SymbolicDim) else None
            if old is None or old not in found or counts[old] < 2:
                continue
            name = next(n for k in range(len(taken) + 1) if (n := f"{old}_{axis}_{k}") not in taken)
            taken.add(name)
            apart[name] = old
            dims[axis] = ir.SymbolicDim(name)
        if dims != list(value.shape or ()):
            value.shape = ir.Shape(dims)
    return apart


def _rename(model: ir.Model, known: Mapping[str, Dim]) -> None:
    """Put sizes in place of symbols of inputs; those in larger expressions stay open."""
    for value in model.graph.inputs:
        if value.shape is not None:
            dims = [d if isinstance(d, int) else known.get(d.value or "", d) for d in value.shape]
            if dims != list(value.shape):
                value.shape = ir.Shape(dims)


# What operators take to be equal; a rule is given the shapes of the inputs, None where unknown.


def _matmul(_node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    a, b = shapes
    if a and b:
        yield a[-1], b[max(len(b) - 2, 0)]


def _gemm(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    a, b = shapes[:2]
    if a and b:
        yield a[_flag(node, "transA") - 1], b[-_flag(node, "transB")]


def _flag(node: ir.Node, name: str) -> int:
    return 1 if node.attributes.get_int(name, 0) else 0


def _conv(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, w = shapes[:2]
    if x and w and len(x) > 2:
        yield x[1], w[1] * node.attributes.get_int("group", 1)


def _conv_transpose(_node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, w = shapes[:2]
    if x and w and len(x) > 2:
        yield x[1], w[0]


def _channels(_node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, scale = shapes[:2]
    if x and scale and len(x) > 1:
        yield x[1], scale[0]


def _normalized(_node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, scale = shapes[:2]
    if x and scale:
        pairs = zip(reversed(x), reversed(scale), strict=False)
        yield from ((size, own) for size, own in pairs if isinstance(own, int) and own > 1)


def _concat(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    known = [shape for shape in shapes if shape]
    axis = node.attributes["axis"].as_int()
    for shape in known:
        if len(shape) == len(known[0]):
            pairs = enumerate(zip(known[0], shape, strict=True))
            yield from (pair for n, pair in pairs if n != axis % len(shape))


def _recurrent(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, w, r = shapes[:3]
    if not (x and w and r):
        return
    first = node.attributes.get_int("layout", 0)
    yield x[2], w[2]
    for index, state in enumerate(shapes[5:7], 5):
        if state:
            batch, ways = (0, 1) if first else (1, 0)
            yield from ((w[0], state[ways]), (r[2], state[2]))
            # A state that the file holds is that of one batch: `run` says so.
            if not isinstance(state[batch], int) or _is_fed(node.inputs[index]):
                yield x[batch], state[batch]


def _attention(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    """Batch, heads and sizes of keys and values, of those before and of new ones."""
    new, past = shapes[1:3], shapes[4:6]
    heads = node.attributes.get_int("kv_num_heads", 0)
    for now, before in zip(new, past, strict=False):
        if not now or not before:
            continue
        flat = len(now) == 3 and heads
        size = now[-1] // heads if flat else now[-1]
        yield from ((now[0], before[0]), (heads if flat else now[1], before[1]), (size, before[3]))


def _is_fed(value: ir.Value | None) -> bool:
    """Whether a value is computed from an input of the model."""
    waiting, seen = [value], {value}
    while waiting:
        each = waiting.pop()
        if each is None:
            continue
        if each.is_graph_input() and not each.is_initializer():
            return True
        maker = each.producer()
        more = [v for v in (maker.inputs if maker is not None else ()) if v not in seen]
        seen.update(more)
        waiting += more
    return False


def _reshape(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    """As many elements before and after, if no size is the -1 of the target."""
    x, target, y = shapes[0], static_operands.constant(node, 1), node.outputs[0].shape
    if not x or target is None or y is None or (target == -1).any():
        return
    before, after = list(x), list(y)
    for dim in y:
        if dim in before:
            before.remove(dim)
            after.remove(dim)
    number = 1
    for dim in before:
        number *= dim if isinstance(dim, int) else 1
    total = 1
    for dim in after:
        if not isinstance(dim, int):
            return
        total *= dim
    symbols = [dim for dim in before if not isinstance(dim, int)]
    if len(symbols) == 1 and number and not total % number:
        yield symbols[0], total // number


def _squeeze(node: ir.Node, shapes: Shapes) -> Iterator[Pair]:
    x, axes = shapes[0], static_operands.constant(node, 1) if len(node.inputs) > 1 else None
    if x and axes is not None:
        yield from ((x[int(axis)], 1) for axis in axes.reshape(-1))


_RULES: Mapping[str, Callable[[ir.Node, Any], Iterator[Pair]]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "BatchNormalization": _channels,
    "InstanceNormalization": _channels,
    "LayerNormalization": _normalized,
    "RMSNormalization": _normalized,
    "Concat": _concat,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Attention", "ScaledAttention"), _attention),
    "Reshape": _reshape,
    "Squeeze": _squeeze,
}
