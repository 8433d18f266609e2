import itertools
import threading

import pytest

from gradtool.training.prefetch import AHEAD, Prefetched


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_items_come_in_their_order(count):
    with Prefetched(iter(range(count))) as items:
        assert list(items) == list(range(count))


@pytest.mark.parametrize("taken", range(6))
def test_an_endless_iterator_is_let_go(taken):
    with Prefetched(itertools.count()) as items:
        assert list(itertools.islice(items, taken)) == list(range(taken))

    assert "gradtool-data" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("place", range(5))
def test_an_error_is_raised_where_its_item_would_have_been(place):
    def items():
        yield from range(place)
        raise ValueError("here")

    taken = []
    with Prefetched(items()) as ahead, pytest.raises(ValueError, match="here"):
        taken.extend(iter(ahead))

    assert taken == [] or taken == list(range(place))


def test_no_more_than_a_few_are_made_ahead():
    made = []

    def items():
        for number in range(100):
            made.append(number)
            yield number

    with Prefetched(items()) as ahead:
        next(iter(ahead))
        threading.Event().wait(0.05)

        assert len(made) <= AHEAD + 1
