"""Whether the operands of attention and of recurrent networks fit each other.

ONNX's own inference looks at few of them, and a misfit becomes a wrong result or a failure far from
its cause.  A size that is open fits everything.
"""

from __future__ import annotations

import onnx_ir as ir

from gradtool.io import static_operands
from gradtool.io.static_operands import Sizes
from gradtool.operators.activations import PARAMETERS
from gradtool.operators.recurrence import ACTIVATIONS, DIRECTIONS, GATES

_RECURRENT = ("W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")


def recurrent(node: ir.Node) -> str | None:
    """Its activations; weights, bias and states against the input: [D, gates · H, I] and so on."""
    wrong = _activations(node)
    if wrong is not None:
        return wrong
    x, r = static_operands.sizes(node, 0), static_operands.sizes(node, 2)
    if x is None or len(x) != 3:
        return None if x is None else f"its input has {len(x)} axes, not 3"
    layout = node.attributes.get_int("layout", 0)
    batch, inputs = x[0 if layout else 1], x[2]
    ways = 2 if node.attributes.get_string("direction", "forward") == "bidirectional" else 1
    hidden = node.attributes.get_int("hidden_size", 0) or (r[2] if r and len(r) == 3 else None)
    rows = None if hidden is None else GATES[node.op_type] * hidden
    state = [batch, ways, hidden] if layout else [ways, batch, hidden]
    wanted: list[Sizes] = [
        [ways, rows, inputs], [ways, rows, hidden], [ways, None if rows is None else 2 * rows],
        [batch], state, state, [ways, None if hidden is None else 3 * hidden],
    ]  # fmt: skip
    for index, (name, sizes) in enumerate(zip(_RECURRENT, wanted, strict=True), start=1):
        found = static_operands.sizes(node, index)
        if found is not None and not _fit(found, sizes):
            return f"its {name} has shape {_said(found)}, {_said(sizes)} is needed"
    return None


def _activations(node: ir.Node) -> str | None:
    """Whether they are known, and enough for each direction."""
    names = node.attributes.get_strings("activations", [])
    unknown = next((name for name in names if name.lower() not in PARAMETERS), None)
    if unknown is not None:
        return f"its activation {unknown!r} must be one of {', '.join(PARAMETERS)}"
    ways = len(DIRECTIONS[node.attributes.get_string("direction", "forward")])
    needed = ways * len(ACTIVATIONS[node.op_type])
    if names and len(names) < needed:
        return f"it has {len(names)} activations, {needed} are needed"
    return None


def attention(node: ir.Node) -> str | None:
    """Queries, keys, values, those of the past and the last axes of the mask."""
    q, k, v = (static_operands.sizes(node, i) for i in range(3))
    if q is None or k is None or v is None or len(q) not in (3, 4):
        return None
    if not len(q) == len(k) == len(v):
        return "its queries, keys and values have different numbers of axes"
    if len(q) == 3:
        heads = {n: node.attributes.get_int(f"{n}_num_heads", 0) for n in ("q", "kv")}
        counts = heads["q"], heads["kv"], heads["kv"]
        if min(counts) < 1:
            return "q_num_heads and kv_num_heads are needed where there are 3 axes"
        if any((x[2] or 0) % n for x, n in zip((q, k, v), counts, strict=True)):
            return "its widths are no multiples of its heads"
        q, k, v = (_heads(x, n) for x, n in zip((q, k, v), counts, strict=True))
    return _keys(node, q, k, v) or _mask(node, q, k, static_operands.sizes(node, 4))


def _keys(node: ir.Node, q: Sizes, k: Sizes, v: Sizes) -> str | None:
    if not _fit(k, [q[0], None, None, q[3]]):
        return f"its keys have shape {_said(k)}, its queries {_said(q)}"
    if not _fit(v, [k[0], k[1], k[2], None]):
        return f"its values have shape {_said(v)}, its keys {_said(k)}"
    if q[1] is not None and k[1] is not None and (not k[1] or q[1] % k[1]):
        return f"{q[1]} heads of queries are no multiple of {k[1]} of keys"
    for index, like in ((4, k), (5, v)):
        past = static_operands.sizes(node, index)
        if past is not None and not _fit(past, [like[0], like[1], None, like[3]]):
            return f"its past has shape {_said(past)}, which does not fit {_said(like)}"
    if _given(node, 4) != _given(node, 5):
        return "its past has keys without values, or values without keys"
    pasts = [static_operands.sizes(node, index) for index in (4, 5)]
    lengths = {past[2] for past in pasts if past is not None and past[2] is not None}
    if len(lengths) > 1:
        return f"its past keys and values have different lengths: {sorted(lengths)}"
    return None


def _mask(node: ir.Node, q: Sizes, k: Sizes, past: Sizes | None) -> str | None:
    mask = static_operands.sizes(node, 3)
    if mask is None or len(mask) < 2:
        return None
    before = 0 if past is None and not _given(node, 4) else None if past is None else past[2]
    total = None if None in (k[2], before) else (k[2] or 0) + (before or 0)
    rows = mask[-2] in (None, 1) or q[2] in (None, mask[-2])
    columns = mask[-1] is None or total is None or mask[-1] <= total
    if rows and columns:
        return None
    return f"its mask has shape {_said(mask)}, the scores are {q[2]}x{total}"


def _heads(sizes: Sizes, heads: int) -> Sizes:
    batch, length, width = sizes
    return [batch, heads, length, None if width is None else width // heads]


def _given(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _fit(found: Sizes, wanted: Sizes) -> bool:
    pairs = zip(found, wanted, strict=False)
    return len(found) == len(wanted) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _said(sizes: Sizes) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)
