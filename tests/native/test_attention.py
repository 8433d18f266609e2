import numpy as np
import pytest
from conftest import sampled
from native_attention import asked, backward, drawn, exact, shaped
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import attention
from gradtool.operators.attention import shape_of

pytestmark = [
    needs_library, *each_instruction_set, pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]  # fmt: skip


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_attention_is_that_of_float64(seed):
    _, q, k, v, masks, attributes = drawn(seed)
    n, *_, values, p, lse = exact(q, k, v, masks, attributes)
    y, lse = shaped(p @ values, q), shaped(lse, q)
    found = run(
        lambda y, lse, room: attention.attention(
            n, q, k, v, masks, y, lse, room, **asked(attributes)
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
def test_a_row_of_which_all_is_hidden_is_that_of_numpy(kind, fill):
    rng = np.random.default_rng(3)
    q, k, v = (normal(rng, 1, 2, 300, 8) for _ in range(3))
    seen = np.tri(300, 300, -1, dtype=bool)
    seen[100:120] = False
    mask = seen if kind == "flags" else np.where(seen, np.float32(0), np.float32(fill))
    n = shape_of(q, k, v)
    (y,) = run(
        lambda y, room: attention.attention(
            n, q, k, v, [mask], y, None, room, fill=fill
        ),
        q.shape, work=attention.work(n), inputs=(q, k, v, mask),
    )  # fmt: skip
    s = q @ k.swapaxes(2, 3) * np.float32(n.scale)
    s = np.where(seen, s, np.float32(fill)) if kind == "flags" else s + mask
    p = np.exp(s.astype(float) - s.max(3, keepdims=True))

    assert np.array_equal(np.isnan(y), np.isnan(p[..., :8]))
    right = p / p.sum(3, keepdims=True) @ v
    assert relative_error(np.nan_to_num(y), np.nan_to_num(right)) < 2e-6


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_its_gradients_are_those_of_float64(seed):
    rng, q, k, v, masks, attributes = drawn(seed)
    attributes["safe"] = 1
    n, *operands, p, lse = exact(q, k, v, masks, attributes)
    y = p @ operands[2]
    dy, dlse = normal(rng, *y.shape), normal(rng, *lse.shape) if rng.integers(2) else None
    expected = [shaped(a, q) for a in backward(n, *operands, masks, p, dy, dlse)[:3]]
    given = [np.ascontiguousarray(shaped(a, q), np.float32) for a in (lse, dy)]
    given.append(None if dlse is None else np.ascontiguousarray(shaped(dlse, q)))
    found = run(
        lambda *to: attention.attention_grad(
            n, q, k, v, *given, masks, *to, fill=attributes["fill"]
        ),
        *[each.shape for each in expected], work=attention.grad_work(n), inputs=(q, k, v, *masks),
    )  # fmt: skip

    for made, right in zip(found, expected, strict=True):
        assert relative_error(made, right) < 1e-5


@pytest.mark.parametrize("absent", range(3))
def test_a_gradient_that_is_not_wanted_changes_no_other(absent):
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
        )()
    for made, right in zip(some, whole, strict=True):
        assert made is None or made.tobytes() == right.tobytes()


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)])
def test_attention_of_nothing_touches_nothing(shape):
    q = np.ones(shape, np.float32)
    n = shape_of(q, q, q, scale=1.0)
    rows = (*shape[:3], 1)
    y, lse = run(
        lambda y, lse, room: attention.attention(
            n, q, q, q, [], y, lse, room
        ),
        shape, rows, work=attention.work(n),
    )  # fmt: skip
    run(
        lambda *to: attention.attention_grad(
            n, q, q, q, lse, y, None, [], *to
        ),
        shape, shape, shape, work=attention.grad_work(n),
    )  # fmt: skip


def test_no_keys_are_a_row_that_sees_nothing():
    q, k = np.ones((1, 1, 5, 4), np.float32), np.ones((1, 1, 0, 4), np.float32)
    n = shape_of(q, k, k)
    for safe, expected in ((0, np.nan), (1, 0.0)):
        y, _ = run(
            lambda y, lse, room, safe=safe: attention.attention(
                n, q, k, k, [], y, lse, room, safe=safe
            ),
            q.shape, (1, 1, 5, 1), work=attention.work(n),
        )  # fmt: skip

        np.testing.assert_array_equal(y, expected)
