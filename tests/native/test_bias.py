import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from scipy import special

from gradtool.native import bias

pytestmark = [needs_library, each_instruction_set]


def bend(x):
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


FUNCTIONS = {
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x * (1 + bend(x)) / 2,
    "silu": lambda x: x * special.expit(x),
    "relu": lambda x: np.maximum(x, 0),
}


def drawn(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(int(rng.choice((1, 2, 7, 33))) for _ in range(rng.integers(3)))
    shape = (*shape, int(rng.choice((1, 3, 16, 40, 129, 1500))))
    return rng, shape, normal(rng, *shape), normal(rng, shape[-1])


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", sampled(range(20)))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_activation_of_a_sum_is_that_of_float64(instructions, name, seed):
    _, shape, x, b = drawn(seed)
    (y,) = run(
        lambda y, room: bias.bias(name, x, b, y, room, instructions=instructions),
        shape, work=bias.work(shape), inputs=(x, b),
    )  # fmt: skip

    assert relative_error(y, FUNCTIONS[name](x.astype(float) + b)) < 1e-6


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", sampled(range(20)))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_gradients_are_differences_of_it_in_float64(instructions, name, seed):
    rng, shape, x, b = drawn(seed)
    dy = normal(rng, *shape)
    dx, db = run(
        lambda *to: bias.bias_grad(name, x, b, dy, *to, instructions=instructions),
        shape, b.shape, work=bias.grad_work(shape), inputs=(x, b, dy),
    )  # fmt: skip

    step, argument = 1e-6, x.astype(float) + b
    f = FUNCTIONS[name]
    exact = (f(argument + step) - f(argument - step)) / (2 * step) * dy
    kink = np.abs(argument) < 1e-5 if name == "relu" else np.zeros(shape, bool)
    assert relative_error(np.where(kink, 0, dx), np.where(kink, 0, exact)) < 1e-6
    rows = dx.reshape(-1, shape[-1]).astype(float)
    assert relative_error(db, rows.sum(0), least=np.sqrt(len(rows))) < 1e-6


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_the_bias_of_no_rows_has_gradient_zero(instructions, shape):
    x, b = np.empty(shape, np.float32), np.ones(shape[1], np.float32)
    _, db = run(
        lambda *to: bias.bias_grad("gelu", x, b, x, *to, instructions=instructions),
        shape, b.shape, work=bias.grad_work(shape),
    )  # fmt: skip

    assert not db.any()
