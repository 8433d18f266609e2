"""Whatever a walk does, its schedule can run, and takes and costs what the simulator says."""

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from mountains import chain, model, mountains
from native_calls import INSTRUCTIONS, needs_library
from programs import program, stepping
from random_programs import programs
from random_steps import steps as any_steps

from gradtool.errors import UsageError
from gradtool.native import library
from gradtool.planning.pareto import walk as walks
from gradtool.planning.pareto.walk import Descent, State, Walk
from gradtool.planning.search.cost_model import CostModel
from gradtool.program.donation import write_after_read

pytestmark = needs_library
EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
PLENTY = 1_000_000  # entries: as many as it takes


@st.composite
def works(draw, most=12):
    """A mountain or any program; costs are few, or integers that floats lose."""
    made, costs = draw(
        st.one_of(
            mountains(most=most),
            programs().map(lambda made: (made, [1 + i % 3 for i in range(len(made.steps))])),
            any_steps(9).map(lambda made: (made, [s.flops for s in made.steps])),
        )
    )
    unit = draw(st.sampled_from([1, 1, 10**6, 2**40 + 1, 2**60]))
    return model((made, [None if c is None else unit * c + c % 2 for c in costs]))


def begun(work, left=20_000):
    walk = Walk(work)
    walk.left = left
    return walk


def stands(walk):
    return walk.state, walk.profile.tolist(), walk.left


def repeats(walk):
    return len(walk.places) - len(walk.work.reads)


def held(walk):
    """A walk holds a schedule of which everything is true that it says."""
    work, places = walk.work, walk.places
    assert work.runs(places)
    assert walk.profile.tolist() == work.simulator.profile([work.order[p] for p in places])
    assert walk.peak == max(walk.profile)
    assert walk.extra == work.work_again(places)
    drawn = [p for p in places if not work.program.steps[work.order[p]].recomputable]
    assert drawn == sorted(drawn)


def idle(work, places, at):
    """The storages alive over a place in a schedule and not touched there, that can be dropped."""
    found = []
    for r, maker in work.maker.items():
        runs = [i for i, p in enumerate(places) if p == maker]
        reads = [i for i, p in enumerate(places) if r in work.reads[p]]
        nexts = [i for i in runs if i >= at] + [len(places)]
        is_over = any(i < at for i in runs) and any(at < i < nexts[0] for i in reads)
        touched = r in work.reads[places[at]] or r in work.writes[places[at]]
        if is_over and not touched and work.may_drop(r) and work.bytes[r]:
            found.append(r)
    return found


def changed(walk, draw):
    """A change that is drawn; it answers whether a walk did what was asked."""
    kind = draw(st.sampled_from(["fit", "trim", "idle", "leave", "load"]))
    low, high, extra = walk.work.simulator.fixed, walk.peak, walk.extra
    if kind == "fit":
        worth = draw(st.one_of(st.none(), st.integers(1, 2 * walk.work.total + 1)))
        budget, ends = draw(st.integers(low, high)), draw(st.booleans())
        return lambda w: w.fit(budget, Descent(worth, 4, 6, ends)) == (w.peak <= budget)
    if kind == "trim":
        budget = draw(st.integers(low, 2 * high))
        return lambda w: w.trim(budget) or (w.extra <= extra and w.peak <= max(budget, high))
    if kind == "idle":
        number = draw(st.integers(0, len(walk.profile) - 1))
        count = len(idle(walk.work, walk.places, number))
        chosen, room = draw(st.integers(0, max(count - 1, 0))), draw(st.integers(low, high))
        return lambda w: w.find_idle(number) == count and not (count and w.rerun_idle(chosen, room))
    if kind == "load":
        places = walk.places
        return lambda w: w.load(places) or w.places == places
    first, count, before = draw(st.integers(0, 9)), draw(st.integers(1, 8)), repeats(walk)
    left = before - min(count, max(before - first, 0))
    return lambda w: w.leave_out(first, count) or repeats(w) <= left


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@settings(max_examples=trials(200), **EXAMPLES)
@given(st.data())
def test_every_change_is_counted_as_the_simulator_counts(instructions, data):
    with library.using(instructions):
        walk = begun(data.draw(works()))
        held(walk)
        for _ in range(data.draw(st.integers(1, 12))):
            left = walk.left
            assert changed(walk, data.draw)(walk)
            assert walk.left <= left
            held(walk)


@settings(max_examples=trials(40), **EXAMPLES)
@given(st.data())
def test_every_instruction_set_takes_the_same_steps(data):
    work = data.draw(works(most=20))
    walks = []
    for each in INSTRUCTIONS:
        with library.using(each):
            walks.append(begun(work))
    for _ in range(6):
        change = changed(walks[0], data.draw)
        for each, walk in zip(INSTRUCTIONS, walks, strict=True):
            with library.using(each):
                assert change(walk)
            assert stands(walk) == stands(walks[0])


@settings(max_examples=trials(60), **EXAMPLES)
@given(works(), st.integers(0, 100))
def test_what_is_trimmed_has_no_repeat_that_the_budget_has_room_to_keep(work, percent):
    walk = begun(work, left=PLENTY)
    low, high = work.simulator.fixed, walk.peak
    budget = low + (high - low) * percent // 100
    walk.fit(low + (high - low) // 3, Descent(patience=4))
    if walk.peak > budget:
        return
    walk.trim(budget)
    state = walk.state
    for number in range(repeats(walk)):
        walk.leave_out(number, 1)
        assert walk.peak > budget or walk.extra == state.extra
        walk.go(state)


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


def test_a_value_that_is_idle_is_computed_again_for_its_next_use_and_left_out_again():
    walk = begun(model(chain(3)))
    before = walk.state

    assert walk.find_idle(3) == 2  # the first two values, while the last is read
    walk.rerun_idle(1, 0)
    again = walk.state
    assert again.places == (0, 1, 2, 3, 1, 4, 5)
    walk.leave_out(0, 1)
    assert walk.state == before
    walk.go(again)
    assert walk.state == again != before


def test_what_served_a_repeat_alone_goes_with_it():
    made = program("a = Tanh x", "b = Exp a", "c = Neg b", "e = Sin c", "d = Add e b", outputs="d")
    walk = begun(CostModel(made, [1] * 5))

    assert walk.find_idle(3) == 1
    walk.rerun_idle(0, 0)
    assert walk.places == [0, 1, 2, 3, 0, 1, 4]
    assert walk.extra == 2
    walk.leave_out(1, 1)
    assert walk.places == [0, 1, 2, 3, 4]


def test_a_schedule_known_from_elsewhere_is_weighed_and_what_has_room_is_trimmed():
    work = model(chain(4))
    walk, places = begun(work), [0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 7]
    peak = work.simulator.peak(places)

    assert walk.weighed(places) == State(peak, 5, tuple(places))
    walk.trim(peak)
    assert walk.peak <= peak
    assert 0 < walk.extra < 5
    walk.trim(10 * peak)
    assert walk.state == Walk(work).state
    walk.left = 0
    walk.load(places)
    walk.trim(10 * peak)
    assert walk.extra == 5


@pytest.mark.parametrize("seed", range(6))
def test_a_long_descent_is_counted_as_the_simulator_counts(seed):
    walk = begun(long_mountain(seed), left=100_000)
    high, works = walk.peak, [0]
    for share in (0.9, 0.7, 0.5, 0.4):
        if walk.fit(int(share * high), Descent(patience=3)):
            walk.trim(int(share * high))
            works.append(walk.extra)
        held(walk)

    assert len(works) > 2
    assert works == sorted(works)


def test_all_readers_of_a_value_go_before_what_touches_it_last():
    """None of them alone would free anything; it is computed again where they may not go."""
    steps = ["g = Exp x", "h = Tanh g", "k = Sin h", "r = Cos g", "s = Neg g", "y = Sum k r s"]
    made = program(*steps, outputs="y", sizes={"g": 64}, work={"k": 512})
    ways = []
    for ends in (False, True):
        way = begun(CostModel(made, [1] * len(steps)))
        assert way.fit(way.peak - 128, Descent(ends=ends))
        ways.append([steps[way.work.order[p]].split()[0] for p in way.places])

    assert ways == [["g", "h", "k", "g", "r", "s", "y"], ["g", "r", "s", "h", "k", "y"]]


def test_what_writes_over_a_parameter_stays_behind_what_reads_it():
    """Step n could go before e, so that h dies there, but e reads what n writes over."""
    steps = ["h = Tanh x", "g = Neg h", "e = Exp w", "n = Sub w h", "z = Sum n e g"]
    made = stepping(*steps, sizes={"h": 64, "x": 64})
    ((reader, writer),) = write_after_read(made)
    walk = begun(CostModel(made, [1, 1, None, 1, 1]))

    walk.fit(walk.work.simulator.fixed, Descent(patience=9, ends=True))
    assert walk.places.index(reader) < walk.places.index(writer)


def test_a_line_that_may_not_grow_runs_no_more_again(monkeypatch):
    work = long_mountain(7)
    most = int(1.1 * sum(work.links))

    def linked():
        walk = begun(work)
        walk.fit(walk.peak // 2, Descent(patience=2))
        held(walk)
        return sum(work.links[p] for p in walk.places)

    assert linked() > most
    monkeypatch.setattr(walks, "room", lambda _work, _places: most)
    assert linked() <= most


def test_costs_of_which_the_sum_has_more_than_64_bits_are_counted_in_larger_units():
    made = long_mountain(0)
    dear = CostModel(made.program, [2**60 * c for c in made.costs])
    few, many = begun(made), begun(dear)
    for walk in (few, many):
        half, total = walk.peak // 2, walk.work.total
        assert not walk.fit(half, Descent(patience=2, worth=total // 20))
        assert total // 20 <= walk.extra < total // 2
        assert walk.fit(half, Descent(patience=2, worth=2 * total))
        held(walk)

    assert (few.unit, few.places) == (1, many.places)
    assert many.unit > 1
    assert many.extra == 2**60 * few.extra > 0


def test_more_bytes_than_any_machine_has_are_refused():
    huge = {"a0": 2**54}
    made = program("a0 = Tanh x", "g0 = Mul a0 a0", outputs="g0", sizes=huge)

    with pytest.raises(UsageError, match="no machine has as many"):
        Walk(CostModel(made))
