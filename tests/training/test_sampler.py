import itertools

import numpy as np
import pytest

from gradtool.training.sampler import Order, in_order, permutation


@pytest.mark.parametrize(("count", "size", "shuffled"), [*itertools.product(
    [1, 2, 7, 64, 1000], [1, 3, 8, 64], [True, False])])  # fmt: skip
def test_an_epoch_has_each_example_once_at_most_and_none_is_in_a_part_of_a_batch(
    count, size, shuffled
):
    order = Order(count, size, 5, shuffled)

    taken = [list(batch) for batch in order.epoch(3)]

    assert [len(batch) for batch in taken] == [size] * (count // size) == [size] * order.batches
    flat = [index for batch in taken for index in batch]
    assert len(set(flat)) == len(flat)
    assert set(flat) <= set(range(count))


@pytest.mark.parametrize("first", range(8))
def test_an_epoch_goes_on_from_any_batch(first):
    order = Order(50, 7, 3)
    whole = [batch.tolist() for batch in order.epoch(2)]

    assert [batch.tolist() for batch in order.epoch(2, first)] == whole[first:]


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {permutation(20, seed, epoch).tobytes() for seed in range(5) for epoch in range(5)}

    assert len(orders) == 25


def test_the_order_is_the_same_everywhere():
    assert permutation(10, 0, 0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]


def test_every_place_is_as_likely_as_any_other():
    counts = np.zeros((4, 4))
    for epoch in range(4000):
        counts[np.arange(4), permutation(4, 1, epoch)] += 1

    assert abs(counts / 1000 - 1).max() < 0.15


@pytest.mark.parametrize(("count", "size"), [(10, 3), (9, 3), (2, 5)])
def test_an_evaluation_takes_all(count, size):
    taken = [index for batch in in_order(count, size) for index in batch]

    assert taken == list(range(count))
