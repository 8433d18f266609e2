import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from scipy import special

from gradtool.native import elementwise

pytestmark = [
    needs_library, *each_instruction_set, pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]  # fmt: skip
SIZES = (0, 1, 15, 17, 1025, 16385, 40001)
FUNCTIONS = {
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "sigmoid": special.expit, "erf": special.erf,
    "sqrt": np.sqrt, "neg": np.negative, "abs": np.abs, "relu": lambda x: np.clip(x, 0, np.inf),
}  # fmt: skip
ULPS = {"exp": 2, "log": 4, "tanh": 4, "sigmoid": 4, "erf": 4}


def gelu(x):
    return x * special.ndtr(x)


def gelu_grad(x, dy):
    return (special.ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)) * dy


def bend(x):
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def gelu_tanh(x):
    return x * (1 + bend(x)) / 2


def gelu_tanh_grad(x, dy):
    inner = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x * x)
    return ((1 + bend(x)) / 2 + x / 2 * (1 - bend(x) ** 2) * inner) * dy


def silu_grad(x, dy):
    s = special.expit(x)
    return s * (1 + x * (1 - s)) * dy


UNARY = FUNCTIONS | {
    "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": lambda x: x * special.expit(x),
}  # fmt: skip
BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum,
    "relu_grad": lambda y, dy: np.where(y <= 0, 0, dy),
    "sigmoid_grad": lambda y, dy: y * (1 - y) * dy,
    "tanh_grad": lambda y, dy: (1 - y * y) * dy,
    "gelu_grad": gelu_grad, "gelu_tanh_grad": gelu_tanh_grad, "silu_grad": silu_grad,
}  # fmt: skip


LEAST = np.finfo(np.float32).smallest_normal


def every_float(step):
    """Floats of every exponent and sign, infinities and NaN among them."""
    bits = np.arange(0, 2**32, step, dtype=np.uint64).astype(np.uint32)
    ends = np.array([0, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x80000000], np.uint32)
    return np.concatenate([bits, ends]).view(np.float32)


def without_small(x):
    """Floats as the library counts them: those below the least normal one are zero."""
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_right_to_its_last_places_for_every_float(name):
    x = every_float(4093)
    y = np.empty_like(x)
    elementwise.unary(name, x, y)()
    exact = FUNCTIONS[name](without_small(x).astype(float))
    rounded = exact.astype(np.float32)

    assert np.array_equal(np.isnan(y), np.isnan(rounded))
    small = np.abs(rounded) < LEAST
    assert np.abs(y[small]).max(initial=0) <= LEAST
    there = np.isfinite(rounded) & ~small
    assert np.array_equal(y[np.isinf(rounded)], rounded[np.isinf(rounded)])
    ulps = np.abs(y[there] - exact[there]) / np.spacing(np.abs(rounded[there])).astype(float)
    assert ulps.max() <= ULPS.get(name, 0.5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_are_those_of_float64(name, size):
    x = normal(np.random.default_rng(size), size)
    x = np.abs(x) if name in ("log", "sqrt") else 3 * x
    (y,) = run(lambda y, _: elementwise.unary(name, x, y), (size,), inputs=(x,))

    assert relative_error(y, UNARY[name](x.astype(float))) < 1e-6


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_are_those_of_float64(name, size):
    a, b = 3 * normal(np.random.default_rng(size), 2, size)
    (y,) = run(
        lambda y, _: elementwise.binary(name, a, b, y),
        (size,),
        inputs=(a, b),
    )

    assert relative_error(y, BINARY[name](a.astype(float), b.astype(float))) < 1e-6


@pytest.mark.parametrize("name", ["min", "max", "relu", "gelu", "gelu_tanh", "silu", *BINARY])
def test_infinities_and_nan_come_out_as_in_numpy(name):
    some = np.array([np.nan, np.inf, -np.inf, 0, 1, -1], np.float32)
    a, b = (np.ascontiguousarray(each.ravel()) for each in np.meshgrid(some, some))
    y = np.empty_like(a)
    if name in UNARY:
        elementwise.unary(name, a, y)()
        exact = UNARY[name](a.astype(float))
    else:
        elementwise.binary(name, a, b, y)()
        exact = BINARY[name](a.astype(float), b.astype(float))
    plain = (
        np.isfinite(a) & np.isfinite(b)
        if name.endswith(("gelu_grad", "u_tanh_grad", "lu", "silu_grad", "tanh"))
        else np.full(a.shape, True)
    )

    np.testing.assert_allclose(y[plain], exact[plain].astype(np.float32), rtol=1e-5, atol=1e-6)


def broadcast(rng, whole):
    """An input that is broadcast to `whole`, and lies anyhow."""
    shape = [n if rng.integers(3) else 1 for n in whole]
    order = rng.permutation(len(shape))
    lying = normal(rng, *(2 * shape[axis] for axis in order))
    steps = tuple(slice(None, None, 2) if rng.integers(2) else slice(shape[a]) for a in order)
    array = lying[steps].transpose(np.argsort(order))
    lead = int(rng.integers(len(shape) + 1))
    return array.reshape(array.shape[lead:]) if set(shape[:lead]) <= {1} else array


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_random_programs_are_those_of_float64(seed):
    rng = np.random.default_rng(seed)
    whole = tuple(int(rng.choice([0, 1, 2, 3, 7, 16, 33, 64])) for _ in range(rng.integers(1, 5)))
    inputs = [broadcast(rng, whole) for _ in range(rng.integers(1, 5))]
    outputs = int(rng.integers(1, 3))
    count, first = int(rng.integers(outputs, 8)), len(inputs) + outputs
    values = [each.astype(float) for each in inputs]
    numbers = list(range(len(inputs)))
    code = []
    for step in range(count):
        left = count - step
        to = len(inputs) + outputs - left if left <= outputs else first + step
        binary = bool(rng.integers(2))
        names = (
            ["add", "sub", "mul", "min", "max"]
            if binary
            else ["neg", "abs", "tanh", "sigmoid", "erf", "relu"]
        )
        name = str(rng.choice(names))
        chosen = [int(rng.integers(len(values))) for _ in range(1 + binary)]
        code.append((name, to, *(numbers[i] for i in chosen)))
        values.append((BINARY if binary else UNARY)[name](*(values[i] for i in chosen)))
        numbers.append(to)
    made = run(
        lambda *to: elementwise.run(code, inputs, to[:-1], to[-1]),
        *[whole] * outputs,
        work=elementwise.work(code, len(inputs), len(inputs), int(np.prod(whole)), outputs),
        inputs=inputs,
    )
    for found, exact in zip(made, values[-outputs:], strict=True):
        assert relative_error(found, np.broadcast_to(exact, whole)) < 2e-5


def test_a_program_may_write_over_an_input_it_has_read():
    x = normal(np.random.default_rng(0), 5000)
    expected = np.maximum(x + 1, 0)
    one = np.ones(1, np.float32)
    code = [("add", 3, 0, 1), ("relu", 2, 3)]
    room = np.empty(elementwise.work(code, inputs=2, held=1, count=5000), np.int8)
    elementwise.run(code, [x, one], [x], room)()

    assert x.tobytes() == expected.tobytes()


def test_too_many_axes_are_refused():
    x = np.zeros((2,) * 14, np.float32)[::1, ::2, ::1, ::2, ::1, ::2, ::1, ::2, ::1, ::2, ::1, ::2]
    x = np.broadcast_to(x, (2,) * 14)
    with pytest.raises(ValueError, match="at most 6"):
        elementwise.unary("exp", x, np.empty(x.shape, np.float32))


def test_an_operand_that_would_be_misread_is_refused():
    x = np.zeros(4)
    with pytest.raises(TypeError, match="neither float32 nor bool"):
        elementwise.unary("exp", x, np.empty(x.shape, np.float32))


def test_a_result_with_gaps_is_refused():
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(TypeError, match="gaps"):
        elementwise.unary("exp", x[:, :2], x[:, :2])
