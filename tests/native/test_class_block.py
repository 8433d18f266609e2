"""Blocks of scores and their part in the cross-entropy of each row, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import sampled
from native_calls import each_instruction_set, needs_library, normal, relative_error, run
from scipy import special

from gradtool.native import class_block
from gradtool.native.call import Call

pytestmark = [needs_library, *each_instruction_set]
FLAG = np.zeros(1, np.int64)
SUMS, RESULTS = ("top", "total", "picked", "even"), ("loss", "lse", "spread")


class Drawn:
    """Scores of some rows in blocks of classes, labels and shares."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.rows, self.classes = (int(rng.choice((1, 2, 5, 17, 40, 130))) for _ in range(2))
        cuts = rng.integers(0, self.classes + 1, rng.integers(3))
        self.starts = sorted({0, *map(int, cuts)} - {self.classes})
        self.u = 4 * normal(rng, self.rows, self.classes)
        self.cap = float(rng.choice((0.0, 2.5)))
        self.labels = rng.integers(0, self.classes, self.rows).astype(rng.choice((np.int32, "i8")))
        self.shares = None
        if rng.integers(2):
            self.shares = rng.uniform(0.2, 2, self.classes).astype(np.float32)

    @property
    def scores(self):
        u = self.u.astype(float)
        return self.cap * np.tanh(u / self.cap) if self.cap else u

    @property
    def parts(self):
        return [self.u[:, a:b].copy() for a, b in zip(self.starts, self.ends, strict=True)]

    @property
    def ends(self):
        return [*self.starts[1:], self.classes]

    def blocks(self, zs):
        for first, z in zip(self.starts, zs, strict=True):
            yield class_block.Block(z, self.labels, first, self.classes, self.cap, self.shares)


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_sums_over_blocks_are_those_of_all_scores(seed):
    d = Drawn(seed)
    ignored = None if seed % 3 else int(d.labels[0])
    count = len(d.starts)

    def bound(*arrays):
        rest = arrays[count:]
        sums = dict(zip(SUMS, rest, strict=False))
        results = dict(zip(RESULTS, rest[len(SUMS) :], strict=False))
        calls = [
            class_block.class_block(
                block, sums, results if block.first == d.starts[-1] else dict.fromkeys(RESULTS),
                FLAG, ignore_index=ignored,
            )
            for block in d.blocks(arrays[:count])
        ]  # fmt: skip
        return Call.joined(calls)

    shapes = [part.shape for part in d.parts] + [(d.rows,)] * 7
    *_, loss, lse, spread = run(bound, *shapes, inputs=(d.labels,), start=d.parts)
    exact = special.logsumexp(d.scores, 1)
    nll = exact - d.scores[np.arange(d.rows), d.labels]
    nll[d.labels == ignored] = 0
    shares = np.ones(d.classes) if d.shares is None else d.shares.astype(float)
    assert relative_error(lse, exact) < 1e-6
    assert np.max(np.abs(loss - nll)) < 1e-5
    assert relative_error(spread, shares.sum() * exact - d.scores @ shares) < 5e-6


@pytest.mark.parametrize("seed", sampled(range(60)))
def test_gradients_by_scores_are_those_of_float64(seed):
    d = Drawn(seed)
    lse = special.logsumexp(d.scores, 1).astype(np.float32)
    of_all, of_label, of_even = (normal(d.rng, d.rows) for _ in range(3))
    of = {"lse": lse, "of_all": of_all, "of_label": of_label, "of_even": of_even}
    of["of_even"] = of_even = of_even if seed % 2 else None
    count = len(d.starts)

    def bound(*arrays):
        biases = arrays[count:]
        calls = [
            class_block.class_block_grad(block, of, bias)
            for block, bias in zip(d.blocks(arrays[:count]), biases, strict=False)
        ]
        return Call.joined(calls)

    shapes = [part.shape for part in d.parts] + [(part.shape[1],) for part in d.parts]
    found = run(bound, *shapes, inputs=(d.labels, lse), start=d.parts)
    exact = np.exp(d.scores - lse[:, None]) * of_all[:, None]
    exact[np.arange(d.rows), d.labels] -= of_label
    if of_even is not None:
        exact -= of_even[:, None] * (1 if d.shares is None else d.shares)
    if d.cap:
        exact *= 1 - (d.scores / d.cap) ** 2
    assert relative_error(np.concatenate(found[:count], 1), exact) < 5e-6
    assert relative_error(np.concatenate(found[count:]), exact.sum(0)) < 2e-5


def test_a_label_that_is_no_class_is_told():
    z, flag = np.zeros((2, 3), np.float32), np.zeros(1, np.int64)
    rooms = np.zeros((7, 2), np.float32)
    sums, results = (
        dict(zip(SUMS, rooms[:4], strict=True)),
        dict(zip(RESULTS, rooms[4:], strict=True)),
    )
    for label, expected in ((2, 0), (3, 1), (-1, 1)):
        block = class_block.Block(z, np.array([0, label]), 0, 3)
        class_block.class_block(block, sums, results, flag)()
        assert flag.item() == expected
