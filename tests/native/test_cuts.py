import numpy as np
import pytest
from conftest import sampled
from native_calls import needs_library

from gradtool.native import library
from gradtool.planning.flow import Network

pytestmark = needs_library


def drawn(seed):
    """A network of layers and some arcs across, back and in circles; capacities of all sizes."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 60))
    count = int(rng.integers(1, 6 * nodes))
    tails = rng.integers(0, nodes, count)
    heads = (tails + rng.integers(-2, 6, count)) % nodes
    most = 2 ** int(rng.integers(1, 50))
    capacities = rng.integers(0, most, count)
    capacities[rng.random(count) < 0.15] = -1
    return Network(nodes, tails, heads), capacities, 0, nodes - 1


def cut(network, capacities, source, sink):
    try:
        value, side = network.cut(capacities, source, sink)
    except ValueError as error:
        return str(error)
    return value, side.tolist()


@pytest.mark.parametrize("seed", sampled(range(300)))
def test_cuts_are_those_of_scipy(monkeypatch, seed):
    network = drawn(seed)
    native = cut(*network)
    monkeypatch.setattr(library, "is_available", lambda: False)

    assert cut(*network) == native
