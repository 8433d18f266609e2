"""Rows of tokens: packing loses nothing, labels are ahead, and orders put like lengths together."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.training.sampler import Order
from gradtool.training.token_rows import TokenRows

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=40)
IGNORED = -100


def rows_of(lengths):
    """Rows of a text each, whose tokens all differ; the first of each does not count."""
    starts = np.concatenate(([0], np.cumsum(lengths)))
    ids = np.arange(starts[-1], dtype=np.int32)
    counts = (ids % 3 != 0) & ~np.isin(ids, starts[:-1])
    return TokenRows(ids, counts, starts, starts[:-1], np.arange(len(lengths)) + 1)


def labels_of(rows, row, width, ahead):
    """The same label by label."""
    start, end = rows.starts[row], rows.starts[row + 1]
    places = [start + place + ahead for place in range(width)]
    return [rows.ids[p] if p < end and rows.counts[p] else IGNORED for p in places]


@given(lengths=LENGTHS, width=st.integers(12, 30))
def test_packing_keeps_each_text_whole_in_a_row_of_the_width(lengths, width):
    plain = rows_of(lengths)
    packed = plain.packed(width)
    texts = np.split(packed.ids, packed.documents[1:])
    line = dict(zip(plain.lines.tolist(), np.split(plain.ids, plain.documents[1:]), strict=True))

    assert packed.lengths.max() <= width
    assert sorted(packed.lines.tolist()) == plain.lines.tolist()
    for number, text in zip(packed.lines.tolist(), texts, strict=True):
        assert np.array_equal(text, line[number])
    assert np.array_equal(packed.counts, plain.counts[packed.ids])
    assert np.isin(packed.starts[:-1], packed.documents).all()
    least = -(-sum(lengths) // width)
    assert len(packed.lengths) <= max(least * 1.7 + 1, 1)  # best fit; decreasing is better yet


@given(lengths=LENGTHS, width=st.integers(12, 30), ahead=st.integers(0, 2), packs=st.booleans())
def test_places_are_those_of_a_row_token_by_token(lengths, width, ahead, packs):
    rows = rows_of(lengths).packed(width) if packs else rows_of(lengths)
    every = np.arange(len(rows.lengths))[::-1]
    ids, mask = rows.tokens(every, width, -1), rows.mask(every, width)
    positions, labels = rows.positions(every, width), rows.labels(every, width, IGNORED, ahead)

    for at, row in enumerate(every):
        size = rows.lengths[row]
        own = rows.ids[rows.starts[row] : rows.starts[row + 1]]
        assert ids[at].tolist() == [*own, *[-1] * (width - size)]
        assert mask[at].tolist() == [place < size for place in range(width)]
        assert labels[at].tolist() == labels_of(rows, row, width, ahead)
        begins = np.isin(np.arange(rows.starts[row], rows.starts[row + 1]), rows.documents)
        found = positions[at]
        assert (found[:size] == 0).tolist() == begins.tolist()
        assert (np.diff(found[:size])[~begins[1:]] == 1).all()
        assert not found[size:].any()


def test_a_token_is_known_by_its_line():
    rows = rows_of([3, 2, 4])

    assert [rows.line_of(n) for n in range(9)] == [1, 1, 1, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("size", [1, 7, 8])
def test_an_order_by_length_takes_each_example_once_and_differs_by_epoch(size):
    lengths = np.random.default_rng(0).integers(1, 99, 1000)
    order = Order(1000, size, 3, lengths=lengths)
    epochs = [np.concatenate(list(order.epoch(n))) for n in range(2)]

    assert all(len(set(each.tolist())) == 1000 // size * size for each in epochs)
    assert (epochs[0] != epochs[1]).any()
    assert np.array_equal(
        epochs[0], np.concatenate(list(Order(1000, size, 3, lengths=lengths).epoch(0)))
    )
    later = list(order.epoch(0, 100))
    assert np.array_equal(later, list(islice(order.epoch(0), 100, None)))
