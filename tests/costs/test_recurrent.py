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


@pytest.mark.parametrize("directions", [1, 2])
def test_lstm_counts_products_bias_activations_and_the_cell(directions):
    way = "bidirectional" if directions == 2 else "forward"
    x, w, r, b = operands(4, directions)
    y = (T, directions, B, H)
    activations = 3 * 4 + 1 + 1  # three sigmoids, the tanh of the cell and that of the state

    bare = count("LSTM", x, w, r, out=[y], hidden_size=H, direction=way)
    assert bare == product(4, directions) + directions * STATE * (activations + 4)
    biased = count("LSTM", x, w, r, b, out=[y], hidden_size=H, direction=way)
    assert biased - bare == directions * (4 * STATE + 4 * H)


def test_coupled_gates_have_one_activation_less():
    x, w, r, _ = operands(4)
    y = (T, 1, B, H)

    plain = count("LSTM", x, w, r, out=[y], hidden_size=H)
    coupled = count("LSTM", x, w, r, out=[y], hidden_size=H, input_forget=1)
    assert plain - coupled == STATE * (4 - 1)


def test_gru_and_rnn_count_products_activations_and_the_blend():
    x, w, r, _ = operands(3)
    found = count("GRU", x, w, r, out=[(T, 1, B, H)], hidden_size=H)
    assert found == product(3) + STATE * (2 * 4 + 1 + 4)

    x, w, r, _ = operands(1)
    found = count("RNN", x, w, r, out=[(T, 1, B, H)], hidden_size=H, activations=["Relu"])
    assert found == product(1) + STATE


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
    again = count(
        "ai.gradtool::RNNGrad", *given, out=[x, w, r, b], hidden_size=H, activations=["Relu"]
    )
    assert again == found - STATE + product(1) + STATE + H + STATE
