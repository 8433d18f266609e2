import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

from gradtool.native import low_bits
from gradtool.operators.low_bits import TABLES, middle, shifts

pytestmark = [needs_library, *each_instruction_set]


def unpacked(packed, bits, values=""):
    """Codes one a byte, along the last axis."""
    codes = np.stack([packed >> np.uint8(s) & (2**bits - 1) for s in shifts(bits, values)], -1)
    return codes.reshape(*packed.shape[:-1], -1)


def drawn(rng, rows, columns, bits, block, kind):
    """Operands of a matrix of few bits, and its numbers in float64."""
    blocks = -(-columns // block)
    codes = rng.integers(0, 256, (rows, blocks, block * bits // 8)).astype(np.uint8)
    scale = normal(rng, rows, blocks)
    given = {}
    offset = np.full((rows, blocks), middle(bits))
    if kind == "bytes":
        given["zero"] = rng.integers(0, 256, (rows, -(-blocks * bits // 8))).astype(np.uint8)
        offset = unpacked(given["zero"], bits)[:, :blocks].astype(int)
    elif kind == "floats":
        offset = given["zero"] = normal(rng, rows, blocks)
    elif kind == "groups":
        given["groups"] = rng.integers(0, blocks, columns).astype(np.int32)
    where = given.get("groups", np.arange(columns) // block)
    values = kind if kind in TABLES else ""
    found = unpacked(codes.reshape(rows, -1), bits, values)[:, :columns]
    if values:
        given["table"] = np.float32(TABLES[kind])
        exact = np.float64(given["table"])[found] * scale[:, where]
    else:
        exact = (found - offset.astype(float)[:, where]) * scale[:, where]
    return (codes, scale), given, exact


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("kind", ["none", "bytes", "floats", "groups", "nf4"])
@pytest.mark.parametrize("seed", sampled(range(10)))
def test_products_are_those_of_decoded_matrices_in_float64(seed, kind, turned):
    rng = np.random.default_rng([seed, turned])
    bits = 4 if kind == "nf4" else int(rng.choice([2, 4, 8]))
    block = int(rng.choice([16, 32, 48, 128]))
    m, rows, columns = (int(rng.choice([1, 2, 5, 17, 40, 70])) for _ in range(3))
    columns = columns + columns % 2
    check(rng, m, rows, columns, bits, block, kind, turned)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_beyond_a_block_are_those_of_float64(bits, turned):
    rng = np.random.default_rng(bits)
    check(rng, 60, 830, 1100, bits, 32, "bytes", turned)


def check(rng, m, rows, columns, bits, block, kind, turned):
    (codes, scale), given, exact = drawn(rng, rows, columns, bits, block, kind)
    n, k = (rows, columns) if turned else (columns, rows)
    x = normal(rng, m, k)
    expected = x.astype(float) @ (exact.T if turned else exact)
    (found,) = run(
        lambda y, work: low_bits.product(
            x, codes, scale, y, work, bits=bits, block=block, turned=turned,
            **given,
        ),
        (m, n), work=low_bits.work(m, n, k), inputs=(x, codes, scale, *given.values()),
    )  # fmt: skip
    size = np.abs(exact).max(initial=1e-3)
    assert relative_error(found, expected, least=np.sqrt(k) * size) < 2e-6


def test_a_column_of_no_block_takes_the_nearest():
    rng = np.random.default_rng(3)
    (codes, scale), _, _ = drawn(rng, 5, 32, 4, 16, "none")
    x = normal(rng, 3, 32)
    found = []
    for groups in ([-(2**31), 2**31 - 1] * 16, [0, 1] * 16):
        y, work = np.empty((3, 5), np.float32), np.empty(low_bits.work(3, 5, 32) // 4, np.float32)
        low_bits.product(
            x, codes, scale, y, work, bits=4, block=16, groups=np.int32(groups),
        )()  # fmt: skip
        found.append(y)

    assert np.array_equal(*found)


@pytest.mark.parametrize("turned", [True, False])
def test_a_product_is_scaled_and_added_to_what_there_is(turned):
    rng = np.random.default_rng(4)
    (codes, scale), _, exact = drawn(rng, 70, 1100, 4, 16, "none")
    x, w = normal(rng, 5, 1100 if turned else 70), exact.T if turned else exact
    bias, y = normal(rng, w.shape[1]), normal(rng, 5, w.shape[1])
    expected = 0.5 * (x.astype(float) @ w) + 2.0 * y + bias
    work = np.empty(low_bits.work(5, w.shape[1], w.shape[0]) // 4, np.float32)
    low_bits.product(
        x, codes, scale, y, work, bits=4, block=16, turned=turned, bias=bias, alpha=0.5, beta=2.0,
    )()  # fmt: skip

    assert relative_error(y, expected, least=np.sqrt(1100) * np.abs(exact).max()) < 2e-6
