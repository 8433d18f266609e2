from __future__ import annotations

import pytest
from costs.counting import count

T, B, I, H = 5, 3, 4, 2  # noqa: E741 - the names of the operands
STATE = T * B * H


def operands(gates: int, directions: int = 1) -> list[tuple[int, ...]]:
    return [
        (T, B, I), (directions, gates * H, I), (directions, gates * H, H),
        (directions, 2 * gates * H),
    ]  # fmt: skip


def product(gates: int, directions: int = 1) -> int:
    """`W x + R h`, and the sum of the two."""
    return directions * gates * STATE * (2 * I + 2 * H + 1)


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_two_directions_count_twice(op, gates):
    one, both = (
        count(op, *operands(gates, n), out=[(T, n, B, H)], hidden_size=H, direction=way)
        for n, way in ((1, "reverse"), (2, "bidirectional"))
    )

    assert both == 2 * one


def test_relu_counts_as_much_as_tanh():
    x, w, r, b = operands(1)
    given = {"out": [(T, 1, B, H)], "hidden_size": H}

    assert count("RNN", x, w, r, b, activations=["Relu"], **given) == count(
        "RNN", x, w, r, b, **given
    )


def test_the_gradient_of_lstm_computes_gates_again_and_takes_four_products():
    x, w, r, b = operands(4)
    y, state = (T, 1, B, H), (1, B, H)
    given = [x, w, r, b, None, None, None, None, y, y]
    by_input, by_state = 2 * 4 * STATE * I, 2 * 4 * STATE * H
    again = product(4) + 4 * STATE + 4 * H + STATE * (3 * 4 + 1 + 3)
    cell = STATE * (1 + 2 + (3 * 2 + 2) + 13)  # h(c) and its slope, slopes of gates, the chain

    every = count("ai.gradtool::LSTMGrad", *given, out=[x, w, r, b, state, state], hidden_size=H)
    assert every == again + cell + 2 * by_input + 2 * by_state + 4 * STATE
    first = count("ai.gradtool::LSTMGrad", *given, out=[None, w, r, b], hidden_size=H)
    assert every - first == by_input


def test_rnn_needs_nothing_again_where_the_slope_follows_from_its_result():
    x, w, r, b = operands(1)
    y = (T, 1, B, H)
    given = [x, w, r, b, None, None, y, y]
    products = 4 * STATE * I + 4 * STATE * H

    found = count("ai.gradtool::RNNGrad", *given, out=[x, w, r, b], hidden_size=H)
    assert found == products + STATE + STATE * (2 + 2)
    relu = count(
        "ai.gradtool::RNNGrad", *given, out=[x, w, r, b], hidden_size=H, activations=["Relu"]
    )
    assert relu == found - STATE
