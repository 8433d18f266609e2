"""What does not fit is refused when sizes are given, whatever the file left open."""

import numpy as np
import pytest
from conftest import build

import gradtool as gt
from gradtool.errors import ModelError
from gradtool.native import library
from gradtool.program.bind_dims import bound

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ENGINES = ["numpy", *(["native"] if library.is_available() else [])]


def recurrent(rng):
    """A node over an open batch with its states in the file: the model, their number, sizes."""
    kind = str(rng.choice(list(GATES)))
    layout, two = int(kind != "LSTM" and rng.integers(2)), bool(rng.integers(2))
    ways, hidden, inputs = 1 + two, int(rng.integers(1, 5)), int(rng.integers(1, 4))
    times, held = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    state = (held, ways, hidden) if layout else (ways, held, hidden)
    rows = GATES[kind] * hidden
    weights = {
        "w": rng.standard_normal((ways, rows, inputs)).astype("f"),
        "r": rng.standard_normal((ways, rows, hidden)).astype("f"),
        "h": np.zeros(state, "f"),
    }
    cell = ", h" if kind == "LSTM" else ""
    x = f"batch, {times}" if layout else f"{times}, batch"
    y = f"batch, {times}, {ways}" if layout else f"{times}, {ways}, batch"
    direction = "bidirectional" if two else "forward"
    text = f"""net (float[{x}, {inputs}] x) => (float[{y}, {hidden}] y) {{
        y = {kind} <hidden_size = {hidden}, layout = {layout}, direction = "{direction}">
            (x, w, r, , , h{cell})
    }}"""
    return gt.load(build(text, **weights)), held, (times, inputs, layout)


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", range(20))
def test_a_state_for_another_batch_is_refused_before_a_kernel_reads_it(case):
    rng = np.random.default_rng(case)
    model, held, (times, inputs, layout) = recurrent(rng)
    training = gt.grad(model, loss="mean:y")

    bound(training.model, {"batch": held})
    for other in {1, held + 1, 64} - {held}:
        x = np.ones((other, times, inputs) if layout else (times, other, inputs), "f")
        for engine in ENGINES:
            with pytest.raises(ModelError, match=r"its initial_h has shape .* is needed"):
                gt.run(training, {"x": x}, kernels=engine)
