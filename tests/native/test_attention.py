import numpy as np
import pytest
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import attention
from gradtool.operators.attention import shape_of

pytestmark = [
    needs_library, each_instruction_set, pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]  # fmt: skip

HIDING = -1e9


def drawn(seed):
    """`(rng, q, k, v, masks, attributes)`, of operands [B, H, S, D] or [B, S, H·D]."""
    rng = np.random.default_rng(seed)
    b, g, heads = (int(rng.integers(1, 4)) for _ in range(3))
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
    """`(n, q, k, v, s, hidden, p, lse)` in float64, keys repeated for each head of queries."""
    n = shape_of(q, k, v, **attributes)
    q = apart(q, n.groups * n.heads).astype(float)
    k, v = (np.repeat(apart(a, n.groups).astype(float), n.heads, 1) for a in (k, v))
    s = q @ k.swapaxes(2, 3) * n.scale
    hidden = np.zeros(s.shape, bool)
    for mask in masks:
        if mask.dtype == np.bool_:
            s = np.where(mask, s, attributes["fill"])
            hidden |= ~np.broadcast_to(mask, s.shape)
        else:
            s = s + mask
    if n.causal:
        s = np.where(np.tri(n.queries, n.keys, dtype=bool), s, -np.inf)
    top = s.max(3, keepdims=True)
    total = np.exp(s - np.maximum(top, -1e300)).sum(3, keepdims=True)
    nothing = total == 0
    lse = np.where(nothing, np.inf if attributes["safe"] else np.nan, top + np.log(total))
    return n, q, k, v, s, hidden, np.exp(s - lse), lse


def shaped(a, q):
    return a if q.ndim == 4 else flat(a)


@pytest.mark.parametrize("seed", range(60))
def test_attention_is_that_of_float64(instructions, seed):
    _, q, k, v, masks, attributes = drawn(seed)
    n, *_, values, _, _, p, lse = exact(q, k, v, masks, attributes)
    y, lse = shaped(p @ values, q), shaped(lse, q)
    found = run(
        lambda y, lse, room: attention.attention(
            n, q, k, v, masks, y, lse, room, instructions=instructions, **asked(attributes)
        ),
        y.shape, lse.shape, work=attention.work(n), inputs=(q, k, v, *masks),
    )  # fmt: skip

    assert np.array_equal(np.isnan(found[0]), np.isnan(y))
    assert np.array_equal(np.isfinite(found[1]), np.isfinite(lse))
    assert relative_error(np.nan_to_num(found[0]), np.nan_to_num(y)) < 2e-6
    there = np.isfinite(lse)
    assert relative_error(found[1][there], lse[there]) < 2e-6


@pytest.mark.parametrize("fill", [-np.inf, np.finfo(np.float32).min, -5.0])
@pytest.mark.parametrize("kind", ["flags", "floats"])
def test_a_row_of_which_all_is_hidden_is_that_of_numpy(instructions, kind, fill):
    rng = np.random.default_rng(3)
    q, k, v = (normal(rng, 1, 2, 300, 8) for _ in range(3))
    seen = np.tri(300, 300, -1, dtype=bool)
    seen[100:120] = False
    mask = seen if kind == "flags" else np.where(seen, np.float32(0), np.float32(fill))
    n = shape_of(q, k, v)
    (y,) = run(
        lambda y, room: attention.attention(
            n, q, k, v, [mask], y, None, room, fill=fill, instructions=instructions
        ),
        q.shape, work=attention.work(n), inputs=(q, k, v, mask),
    )  # fmt: skip
    s = q @ k.swapaxes(2, 3) * np.float32(n.scale)
    s = np.where(seen, s, np.float32(fill)) if kind == "flags" else s + mask
    p = np.exp(s.astype(float) - s.max(3, keepdims=True))

    assert np.array_equal(np.isnan(y), np.isnan(p[..., :8]))
    right = p / p.sum(3, keepdims=True) @ v
    assert relative_error(np.nan_to_num(y), np.nan_to_num(right)) < 2e-6


@pytest.mark.parametrize("seed", range(60))
def test_its_gradients_are_those_of_float64(instructions, seed):
    rng, q, k, v, masks, attributes = drawn(seed)
    attributes["safe"] = 1
    n, qs, ks, values, _, hidden, p, lse = exact(q, k, v, masks, attributes)
    y = p @ values
    dy, dlse = normal(rng, *y.shape), normal(rng, *lse.shape) if rng.integers(2) else None
    dp = dy @ values.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(3, keepdims=True) + (0 if dlse is None else dlse))
    ds = np.where(hidden, 0, ds)

    def together(a):
        return a.reshape(n.batch, n.groups, n.heads, *a.shape[2:]).sum(2)

    expected = [
        shaped(ds @ ks * n.scale, q),
        shaped(together(ds.swapaxes(2, 3) @ qs * n.scale), q),
        shaped(together(p.swapaxes(2, 3) @ dy), q),
    ]
    given = [np.ascontiguousarray(shaped(a, q), np.float32) for a in (lse, dy)]
    given.append(None if dlse is None else np.ascontiguousarray(shaped(dlse, q)))
    found = run(
        lambda *to: attention.attention_grad(
            n, q, k, v, *given, masks, *to, fill=attributes["fill"], instructions=instructions
        ),
        *[each.shape for each in expected], work=attention.grad_work(n), inputs=(q, k, v, *masks),
    )  # fmt: skip

    for made, right in zip(found, expected, strict=True):
        assert relative_error(made, right) < 1e-5


@pytest.mark.parametrize("absent", range(3))
def test_a_gradient_that_is_not_wanted_changes_no_other(instructions, absent):
    _, q, k, v, masks, attributes = drawn(11)
    n, *_, lse = exact(q, k, v, masks, attributes | {"safe": 1})
    lse = np.ascontiguousarray(shaped(lse, q), np.float32)
    shape = (n.batch, n.groups * n.heads, n.queries, n.value_size)
    dy = np.ascontiguousarray(shaped(np.ones(shape, np.float32), q))
    room = np.empty(attention.grad_work(n), np.int8)
    whole = [np.empty_like(a) for a in (q, k, v)]
    some = [None if i == absent else np.empty_like(a) for i, a in enumerate((q, k, v))]
    for to in (whole, some):
        attention.attention_grad(
            n,
            q,
            k,
            v,
            lse,
            dy,
            None,
            masks,
            *to,
            room,
            fill=attributes["fill"],
            instructions=instructions,
        )()
    for made, right in zip(some, whole, strict=True):
        assert made is None or made.tobytes() == right.tobytes()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_attention_of_nothing_touches_nothing(instructions, shape):
    q = np.ones(shape, np.float32)
    n = shape_of(q, q, q, scale=1.0)
    rows = (*shape[:3], 1)
    y, lse = run(
        lambda y, lse, room: attention.attention(
            n, q, q, q, [], y, lse, room, instructions=instructions
        ),
        shape, rows, work=attention.work(n),
    )  # fmt: skip
    run(
        lambda *to: attention.attention_grad(
            n, q, q, q, lse, y, None, [], *to, instructions=instructions
        ),
        shape, shape, shape, work=attention.grad_work(n),
    )  # fmt: skip


def test_no_keys_are_a_row_that_sees_nothing(instructions):
    q, k = np.ones((1, 1, 5, 4), np.float32), np.ones((1, 1, 0, 4), np.float32)
    n = shape_of(q, k, k)
    for safe, expected in ((0, np.nan), (1, 0.0)):
        y, _ = run(
            lambda y, lse, room, safe=safe: attention.attention(
                n, q, k, k, [], y, lse, room, safe=safe, instructions=instructions
            ),
            q.shape, (1, 1, 5, 1), work=attention.work(n),
        )  # fmt: skip

        np.testing.assert_array_equal(y, expected)
