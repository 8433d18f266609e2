import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.graph.specs import Spec
from gradtool.native import recurrent
from gradtool.operators.recurrence import recurrence
from gradtool.ops.kernels import find
from gradtool.ops.shared import call

pytestmark = [needs_library, *each_instruction_set]
SEEDS = sampled(range(40))


def drawn(seed, gates):
    """`(rng, inputs, attributes)`: X, W, R, B, lengths, and the first hidden state."""
    rng = np.random.default_rng(seed)
    times, batch = int(rng.choice((1, 2, 3, 7))), int(rng.choice((1, 2, 5, 17)))
    inputs, hidden = int(rng.choice((1, 3, 16, 20))), int(rng.choice((1, 4, 16, 33, 48)))
    if seed % 10 == 0:
        times, batch, hidden = 40, 17, 20
    layout = int(rng.integers(2))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    d = 2 if direction == "bidirectional" else 1
    x = normal(rng, *((batch, times) if layout else (times, batch)), inputs)
    w, r = normal(rng, d, gates * hidden, inputs), normal(rng, d, gates * hidden, hidden)
    r *= np.float32(hidden**-0.5)
    b = normal(rng, d, 2 * gates * hidden) if rng.integers(2) else None
    lens = rng.integers(0, times + 1, batch).astype(np.int32) if rng.integers(2) else None
    h0 = normal(rng, *state_shape(layout, d, batch, hidden)) if rng.integers(2) else None
    return rng, [x, w, r, b, lens, h0], {"direction": direction, "layout": layout}


def state_shape(layout, d, batch, hidden):
    return (batch, d, hidden) if layout else (d, batch, hidden)


def shapes(inputs, layout):
    """Those of Y and of a state."""
    x, _, r = inputs[:3]
    d, hidden = r.shape[0], r.shape[2]
    times, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    y = (batch, times, d, hidden) if layout else (times, d, batch, hidden)
    return y, state_shape(layout, d, batch, hidden)


def wide(a):
    return a if a is None or a.dtype == np.int32 else a.astype(float)


def exact(domain, name, inputs, out, attributes):
    """What numpy's kernel makes of the inputs in float64."""
    specs = [None if s is None else Spec(tuple(s), np.dtype(float)) for s in out]
    kernel = find(domain, name, 22 if not domain else 1)
    return call.call(np, kernel, [wide(a) for a in inputs], specs, attributes)


def drawn_lstm(seed):
    rng, inputs, attributes = drawn(seed, 4)
    _, state = shapes(inputs, attributes["layout"])
    inputs.append(normal(rng, *state) if rng.integers(2) else None)
    d, hidden = inputs[2].shape[0], inputs[2].shape[2]
    inputs.append(normal(rng, d, 3 * hidden) if rng.integers(2) else None)
    return rng, inputs, attributes


def sizes(op, inputs, attributes):
    x, _, r = inputs[:3]
    return recurrence(op, x, r, attributes)


def there(arrays):
    return [a for a in arrays if a is not None]


def compare(made, expected, bound):
    for found, right in zip(made, expected, strict=True):
        assert relative_error(found, right) < bound


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_lstm_is_that_of_numpy_in_float64(seed, is_kept):
    _, inputs, attributes = drawn_lstm(seed)
    y, state = shapes(inputs, attributes["layout"])
    n = sizes("LSTM", inputs, attributes)

    def bound(*made):
        *results, work = made
        taken = (*results, *(() if is_kept else (None,)))
        return recurrent.lstm(n, *inputs, *taken, work)

    beside = [(recurrent.lstm_kept(n),)] * is_kept
    made = run(
        bound, y, state, state, *beside, work=recurrent.lstm_work(n, is_kept=is_kept),
        inputs=there(inputs),
    )  # fmt: skip

    compare(made[:3], exact("", "LSTM", inputs, (y, state, state), attributes), 3e-6)


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_lstm_are_those_of_numpy_in_float64(seed, is_kept):
    """Whether gates are computed again, or are those that forward kept."""
    rng, inputs, attributes = drawn_lstm(seed)
    y_shape, state = shapes(inputs, attributes["layout"])
    (y,) = exact("", "LSTM", inputs, (y_shape,), attributes)
    given = [normal(rng, *shape) if rng.integers(4) else None for shape in (y_shape, state, state)]
    x, w, r, b, _, _, _, p = inputs
    wanted = [x.shape, w.shape, r.shape, b, state, state, p]
    wanted = [a.shape if isinstance(a, np.ndarray) else a for a in wanted]
    operands = [*inputs, y.astype(np.float32), *given]
    n = sizes("LSTM", inputs, attributes)
    kept = forward_kept(n, inputs) if is_kept else None

    def bound(*made):
        rest = iter(made)
        outputs = [None if shape is None else next(rest) for shape in wanted]
        return recurrent.lstm_grad(n, *operands, kept, *outputs, next(rest))

    work = recurrent.lstm_grad_work(n, is_kept=is_kept)
    made = run(bound, *there(wanted), work=work, inputs=there([*operands, kept]))
    expected = exact("ai.gradtool", "LSTMGrad", operands, wanted, attributes)
    compare(made, there(expected), 1e-5)


def forward_kept(n, inputs):
    """What forward keeps for its gradient."""
    (kept,) = run(
        lambda to, work: recurrent.lstm(
            n, *inputs, None, None, None, to, work
        ),
        (recurrent.lstm_kept(n),), work=recurrent.lstm_work(n, is_kept=True), inputs=there(inputs),
    )  # fmt: skip
    return kept


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_gru_is_that_of_numpy_in_float64(seed, linear):
    _, inputs, attributes = drawn(seed, 3)
    attributes["linear_before_reset"] = linear
    y, state = shapes(inputs, attributes["layout"])
    n = sizes("GRU", inputs, attributes)
    made = run(
        lambda *to: recurrent.gru(
            n, *inputs, *to, linear_before_reset=linear
        ),
        y, state, work=recurrent.gru_work(n), inputs=there(inputs),
    )  # fmt: skip

    compare(made, exact("", "GRU", inputs, (y, state), attributes), 3e-6)


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_gru_are_those_of_numpy_in_float64(seed, linear):
    rng, inputs, attributes = drawn(seed, 3)
    attributes["linear_before_reset"] = linear
    y_shape, state = shapes(inputs, attributes["layout"])
    (y,) = exact("", "GRU", inputs, (y_shape,), attributes)
    given = [normal(rng, *shape) if rng.integers(4) else None for shape in (y_shape, state)]
    x, w, r, b, *_ = inputs
    wanted = [x.shape, w.shape, r.shape, None if b is None else b.shape, state]
    operands = [*inputs, y.astype(np.float32), *given]
    n = sizes("GRU", inputs, attributes)

    def bound(*made):
        rest = iter(made)
        outputs = [None if shape is None else next(rest) for shape in wanted]
        return recurrent.gru_grad(
            n, *operands, *outputs, next(rest),
            linear_before_reset=linear,
        )  # fmt: skip

    made = run(bound, *there(wanted), work=recurrent.gru_grad_work(n), inputs=there(operands))
    expected = exact("ai.gradtool", "GRUGrad", operands, wanted, attributes)
    compare(made, there(expected), 1e-5)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4)])
def test_sequences_of_nothing_touch_nothing(shape):
    times, batch, inputs, hidden = shape
    x = np.zeros((times, batch, inputs), np.float32)
    w, r = (
        np.zeros((1, 4 * hidden, inputs), np.float32),
        np.zeros((1, 4 * hidden, hidden), np.float32),
    )
    y, state = (times, 1, batch, hidden), (1, batch, hidden)
    n = recurrence("LSTM", x, r, {})
    run(
        lambda y, y_h, y_c, room: recurrent.lstm(
            n, x, w, r, *[None] * 5, y, y_h, y_c, None, room
        ),
        y, state, state, work=recurrent.lstm_work(n),
    )  # fmt: skip
    given = (np.zeros(y, np.float32), np.zeros(y, np.float32), None, None, None)
    made = run(
        lambda dx, dw, dr, room: recurrent.lstm_grad(
            n, x, w, r, *[None] * 5, *given, dx, dw, dr, *[None] * 4, room,
        ),
        x.shape, w.shape, r.shape, work=recurrent.lstm_grad_work(n),
    )  # fmt: skip

    assert not any(each.any() for each in made)
