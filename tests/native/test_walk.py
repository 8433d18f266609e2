"""The native walk takes every step that the walk in Python takes, and ends where it ends."""

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from mountains import model, mountains
from native_calls import each_instruction_set, needs_library
from programs import program
from random_programs import programs

from gradtool.native import library
from gradtool.planning.ladder import line, native_walk
from gradtool.planning.ladder.descent import PythonWalk
from gradtool.planning.ladder.native_walk import NativeWalk, walk_of
from gradtool.planning.ladder.rungs import Rungs
from gradtool.planning.ladder.walk import Descent
from gradtool.planning.search.context import SearchContext
from gradtool.planning.search.cost_model import CostModel

pytestmark = needs_library
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


@st.composite
def works(draw, most=12):
    """A mountain or any program; costs are few, or integers that floats lose."""
    made, costs = draw(
        st.one_of(
            mountains(most=most),
            programs().map(lambda made: (made, [1 + i % 3 for i in range(len(made.steps))])),
        )
    )
    unit = draw(st.sampled_from([1, 1, 10**6, 2**40 + 1]))
    return model((made, [unit * cost + cost % 2 for cost in costs]))


def stands(walk):
    return walk.state, walk.profile.tolist(), walk.left


def changed(walk, draw):
    """What a change that is drawn answers."""
    work, kind = walk.work, draw(st.sampled_from(["fit", "trim", "idle", "leave", "load"]))
    low, high = work.simulator.fixed, walk.peak
    if kind == "fit":
        worth = draw(st.one_of(st.none(), st.integers(1, 2 * work.total + 1)))
        budget = draw(st.integers(low, high))
        ends = draw(st.booleans())
        return lambda w: w.fit(budget, Descent(worth, 4, 6, ends))
    if kind == "trim":
        budget = draw(st.integers(low, 2 * high))
        return lambda w: w.trim(budget)
    if kind == "idle":
        number = draw(st.integers(0, len(walk.profile) - 1))
        if count := walk.find_idle(number):
            chosen, budget = draw(st.integers(0, count - 1)), draw(st.integers(low, high))
            return lambda w: (w.find_idle(number), w.rerun_idle(chosen, budget))
    if kind == "load":
        places = walk.places
        return lambda w: w.load(places)
    first, count = draw(st.integers(0, 9)), draw(st.integers(1, 8))
    return lambda w: w.leave_out(first, count)


@pytest.mark.exhaustive
@each_instruction_set
@settings(max_examples=trials(150), **EXAMPLES)
@given(st.data())
def test_every_change_is_that_of_python(instructions, data):
    work = data.draw(works())
    twins = NativeWalk(work, instructions), PythonWalk(work)
    for walk in twins:
        walk.left = 20_000
    for _ in range(data.draw(st.integers(1, 12))):
        change = changed(twins[0], data.draw)
        said = [change(walk) for walk in twins]
        assert said[0] == said[1]
        assert stands(twins[0]) == stands(twins[1])


@pytest.mark.exhaustive
@settings(max_examples=trials(20), **EXAMPLES)
@given(works(most=40))
def test_every_rung_is_that_of_python(work):
    found = []
    for native in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(library, "is_available", lambda native=native: native)
            rungs = Rungs(work, SearchContext(effort=0.1))
            assert isinstance(rungs._walk, NativeWalk) == native
            found.append(rungs.states)

    assert found[0] == found[1]


def long_mountain(seed, count=60):
    """A chain of values of several sizes, each read on the way back, some often."""
    rng = np.random.default_rng(seed)
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(count)]
    backward = [
        f"g{i} = Mul {f'g{i + 1}' if i + 1 < count else f'a{i}'} a{rng.integers(0, i + 1)}"
        for i in reversed(range(count))
    ]
    names = [f"{kind}{i}" for kind in "ag" for i in range(count)]
    sizes = {name: 16 * int(rng.integers(1, 60)) for name in names}
    made = program(*forward, *backward, outputs="g0", sizes=sizes)
    return CostModel(made, rng.integers(1, 9, len(made.steps)).tolist())


@pytest.mark.parametrize("walk", [NativeWalk, PythonWalk])
def test_all_readers_of_a_value_go_before_what_touches_it_last(walk):
    """None of them alone would free anything; it is computed again where they may not go."""
    steps = ["g = Exp x", "h = Tanh g", "k = Sin h", "r = Cos g", "s = Neg g", "y = Sum k r s"]
    made = program(*steps, outputs="y", sizes={"g": 64}, work={"k": 512})
    work = CostModel(made, [1] * len(steps))
    ways = []
    for ends in (False, True):
        way = walk(work)
        way.left = 10_000
        assert way.fit(way.peak - 128, Descent(ends=ends))
        ways.append([steps[work.order[p]].split()[0] for p in way.places])

    assert ways == [["g", "h", "k", "g", "r", "s", "y"], ["g", "r", "s", "h", "k", "y"]]


@pytest.mark.parametrize("seed", range(6))
def test_a_long_descent_is_that_of_python(seed):
    work = long_mountain(seed)
    twins = NativeWalk(work), PythonWalk(work)
    high, said = twins[1].peak, []
    for walk in twins:
        walk.left = 100_000
        for share in (0.9, 0.7, 0.5, 0.4):
            said.append((walk.fit(int(share * high), Descent(patience=3)), *stands(walk)))
            walk.trim(int(share * high))
            said.append(stands(walk))
    half = len(said) // 2

    assert said[:half] == said[half:]
    assert twins[0].extra > 0


def test_a_line_that_may_not_grow_refuses_alike(monkeypatch):
    work = long_mountain(7)
    most = int(1.1 * sum(work.links))

    def linked(*walks):
        for walk in walks:
            walk.left = 20_000
            walk.fit(walk.peak // 2, Descent(patience=2))
        return sum(work.links[p] for p in walks[0].places)

    assert linked(PythonWalk(work)) > most
    for module in (line, native_walk):
        monkeypatch.setattr(module, "room", lambda _work, _places: most)
    twins = NativeWalk(work), PythonWalk(work)

    assert linked(*twins) <= most
    assert stands(twins[0]) == stands(twins[1])


def test_sums_beyond_64_bits_are_left_to_python():
    made = long_mountain(0)

    assert isinstance(walk_of(made), NativeWalk)
    assert isinstance(walk_of(CostModel(made.program, [2**60] * len(made.reads))), PythonWalk)
