"""Attention drawn at random, and in float64: what the native one is compared with."""

from __future__ import annotations

import numpy as np
from native_calls import normal

from gradtool.operators.attention import shape_of

HIDING = -1e9


def drawn(seed, most=3):
    """`(rng, q, k, v, masks, attributes)`, of operands [B, H, S, D] or [B, S, H·D].

    There are at most so many batches, groups and heads of a group.
    """
    rng = np.random.default_rng(seed)
    b, g, heads = (int(rng.integers(1, most + 1)) for _ in range(3))
    s, t = (int(rng.choice((1, 2, 5, 16, 33, 70))) for _ in range(2))
    if seed % 5 == 0:
        b, g, heads = 1, 1, 2
        s, t = (int(rng.choice((65, 257, 300, 530))) for _ in range(2))
    d, e = (int(rng.choice((1, 3, 8, 16, 24, 33))) for _ in range(2))
    q, k, v = normal(rng, b, g * heads, s, d), normal(rng, b, g, t, d), normal(rng, b, g, t, e)
    masks, fill = [], float(rng.choice([-np.inf, HIDING, -3.0]))
    for _ in range(rng.integers(3)):
        shape = tuple(n if rng.integers(2) else 1 for n in (b, g * heads, s, t))
        shape = shape[int(rng.integers(3)) :]
        kind = rng.integers(3)
        if kind == 2:
            masks = [ends(rng, shape)]
            break
        masks.append(rng.random(shape) < 0.8 if kind else normal(rng, *shape))
    attributes = {
        "is_causal": int(rng.integers(2)), "safe": int(rng.integers(2)), "fill": fill
    }  # fmt: skip
    if rng.integers(2):
        attributes["scale"] = 0.3
    if rng.integers(2):
        attributes |= {"q_num_heads": g * heads, "kv_num_heads": g}
        q, k, v = (flat(each) for each in (q, k, v))
    return rng, q, k, v, masks, attributes


def ends(rng, shape):
    """A mask that hides what comes after some column of each row: about the diagonal, or any."""
    rows, columns = (1, 1, *shape)[-2:]
    fewest = int(rng.integers(2))
    last = np.arange(rows) if rng.integers(2) else rng.integers(0, columns + 1, rows)
    seen = np.arange(columns) < np.maximum(last, fewest)[:, None]
    seen = np.ascontiguousarray(np.broadcast_to(seen, (*shape[:-2], rows, columns)).reshape(shape))
    if rng.integers(2):
        return seen
    lowest = np.float32(np.finfo(np.float32).min if rng.integers(2) else -np.inf)
    return np.where(seen, np.float32(0), lowest)


def asked(attributes):
    return {name: attributes[name] for name in ("fill", "safe")}


def flat(a):
    return np.ascontiguousarray(a.swapaxes(1, 2)).reshape(a.shape[0], a.shape[2], -1)


def apart(a, heads):
    return a if a.ndim == 4 else a.reshape(*a.shape[:2], heads, -1).swapaxes(1, 2)


def exact(q, k, v, masks, attributes):
    """`(n, q, k, v, p, lse)` in float64, keys repeated for each head of queries."""
    n = shape_of(q, k, v, **attributes)
    q = apart(q, n.groups * n.heads).astype(float)
    k, v = (np.repeat(apart(a, n.groups).astype(float), n.heads, 1) for a in (k, v))
    s = q @ k.swapaxes(2, 3) * n.scale
    for mask in masks:
        s = np.where(mask, s, attributes["fill"]) if mask.dtype == np.bool_ else s + mask
    if n.causal:
        s = np.where(np.tri(n.queries, n.keys, dtype=bool), s, -np.inf)
    top = s.max(3, keepdims=True)
    total = np.exp(s - np.maximum(top, -1e300)).sum(3, keepdims=True)
    nothing = total == 0
    lse = np.where(nothing, np.inf if attributes["safe"] else np.nan, top + np.log(total))
    return n, q, k, v, np.exp(s - lse), lse


def shaped(a, q):
    return a if q.ndim == 4 else flat(a)


def slopes(masks, ds):
    """What the gradient of the scores gives to each mask; what later flags hide gets none."""
    found = []
    for mask in reversed(masks):
        whole = (1,) * (4 - mask.ndim) + mask.shape
        axes = tuple(axis for axis in range(4) if whole[axis] == 1)
        found.append(ds.sum(axes, keepdims=True).reshape(mask.shape))
        ds = np.where(mask, ds, 0) if mask.dtype == np.bool_ else ds
    return found[::-1], ds


def backward(n, q, k, v, masks, p, dy, dlse):
    """`[dq, dk, dv, *dmasks]` from `exact` operands and p."""
    dp = dy @ v.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(3, keepdims=True) + (0 if dlse is None else dlse))
    dmasks, ds = slopes(masks, ds)

    def together(a):
        return a.reshape(n.batch, n.groups, n.heads, *a.shape[2:]).sum(2)

    dk, dv = ds.swapaxes(2, 3) @ q * n.scale, p.swapaxes(2, 3) @ dy
    return [ds @ k * n.scale, together(dk), together(dv), *dmasks]
