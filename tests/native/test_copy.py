import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, threads

from gradtool.native import strided

pytestmark = [needs_library, *each_instruction_set]
TYPES = ("bool", "int8", "float16", "float32", "int32", "int64", "float64")


def lying(rng, shape, dtype):
    """An array of a shape that lies anyhow: axes in any order, in steps, backwards, broadcast."""
    order = rng.permutation(len(shape))
    bits = rng.integers(0, 256, (*(2 * shape[axis] for axis in order), dtype.itemsize), np.uint8)
    whole = (bits & 1 if dtype.kind == "b" else bits).view(dtype)
    whole = whole.reshape(whole.shape[:-1])
    steps = {
        0: slice, 1: lambda _: slice(None, None, 2), 2: lambda _: slice(None, None, -2),
    }  # fmt: skip
    chosen = tuple(steps[int(rng.integers(3))](shape[axis]) for axis in order)
    return whole[(*chosen, ...)].transpose(np.argsort(order))


def shape_of(rng):
    most = [1, 2, 3, 7, 16, 33] + [64, 257] * bool(rng.integers(2))
    shape = tuple(int(rng.choice(most)) for _ in range(rng.integers(0, 6)))
    return shape if np.prod(shape) < 2**20 else shape[:2]


@pytest.mark.parametrize("seed", sampled(range(150)))
def test_a_copy_is_that_of_numpy_and_writes_nothing_else(seed):
    rng = np.random.default_rng(seed)
    dtype, shape = np.dtype(str(rng.choice(TYPES))), shape_of(rng)
    target = lying(rng, shape, dtype)
    spread = tuple(n if rng.integers(4) else 1 for n in shape)
    source = lying(rng, spread, dtype)
    whole = target
    while whole.base is not None and whole.base.dtype == dtype:
        whole = whole.base
    before, held = whole.copy(), source.tobytes()
    for count in (1, 3):
        whole[...] = before
        with threads(count):
            strided.copy(source, target)()
        found = whole.tobytes()
        whole[...] = before
        target[...] = source
        assert found == whole.tobytes()
    assert source.tobytes() == held


@pytest.mark.parametrize("size", [1, 4095, 4096, 3 * 4096, 100_003])
def test_what_lies_together_is_copied_whole(size):
    source, target = np.arange(size), np.zeros(size, np.int64)
    strided.copy(source, target)()

    assert np.array_equal(source, target)


def test_another_type_is_refused():
    with pytest.raises(TypeError, match="int64 is copied to float32"):
        strided.copy(np.arange(3), np.zeros(3, np.float32))
