from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtool.errors import UsageError
from gradtool.planning.flow import Network, min_cut

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@st.composite
def networks(draw):
    """Nodes and arcs, with capacities far beyond 32 bits among them."""
    nodes = draw(st.integers(2, 6))
    most = draw(st.sampled_from([5, 2**31 + 5, 2**45, 2**56]))
    node = st.integers(0, nodes - 1)
    capacity = st.one_of(st.none(), st.integers(0, most), st.integers(0, most))
    return nodes, draw(st.lists(st.tuples(node, node, capacity), max_size=12))


def across(arcs, side):
    """The capacity of a cut, None if it is unlimited."""
    cut = [c for tail, head, c in arcs if side[tail] and not side[head]]
    return None if None in cut else sum(cut)


@settings(max_examples=trials(300), **EXAMPLES)
@given(networks())
def test_the_cut_is_the_least_of_all_cuts_and_the_smallest_of_these(network):
    nodes, arcs = network
    sides = [
        [True, *(bool(bits >> i & 1) for i in range(nodes - 2)), False]
        for bits in range(2 ** (nodes - 2))
    ]
    cuts = [(across(arcs, side), sum(side)) for side in sides]
    finite = [cut for cut in cuts if cut[0] is not None]
    if not finite:
        with pytest.raises(ValueError, match="arcs without a limit"):
            min_cut(nodes, arcs, 0, nodes - 1)
        return
    cut = min_cut(nodes, arcs, 0, nodes - 1)

    assert (cut.value, int(cut.source_side.sum())) == min(finite)
    assert across(arcs, cut.source_side) == cut.value


def test_a_network_is_asked_for_several_capacities():
    network = Network(3, np.array([0, 1]), np.array([1, 2]))

    for most in (2**40 + 1, 5, 0):
        assert network.cut(np.array([-1, most]), 0, 2).value == most


def test_capacities_that_could_wrap_are_an_error():
    with pytest.raises(UsageError, match="add up to"):
        min_cut(2, [(0, 1, 2**59), (0, 1, 2**59)], 0, 1)
    with pytest.raises(UsageError, match="add up to"):
        min_cut(2, [(0, 1, 2**70)], 0, 1)
