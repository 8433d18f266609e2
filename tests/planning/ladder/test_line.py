"""After any changes a line says what the simulator says of the schedule that it has become."""

from __future__ import annotations

from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from mountains import chain, model, mountains
from programs import program
from random_programs import programs

from gradtool.planning.ladder.line import Line
from gradtool.planning.ladder.passing import Passing
from gradtool.planning.ladder.reruns import Reruns
from gradtool.planning.search.cost_model import CostModel

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def order(line):
    return [line.work.order[p] for p in line.places]


def state(line):
    saved = {e: s for e, s in line._saved.items() if s}
    return (list(line.entries), line.profile.tolist(), line.extra, [list(r) for r in line.runs],
            {r: list(u) for r, u in line.uses.items()}, dict(line.place), saved)  # fmt: skip


def changed(line, draw):
    """Make one change that is drawn: a run more, one less, or one elsewhere."""
    work = line.work
    kind = draw(st.sampled_from(["again", "again", "remove", "pull", "push"]))
    if kind == "again":
        uses = [(r, u) for r, found in line.uses.items() if work.may_drop(r) for u in found]
        if uses:
            root, reader = draw(st.sampled_from(uses))
            room = draw(st.sampled_from([None, 0, work.simulator.fixed + 128]))
            return Reruns(work).again(line, work.maker[root], reader, room)
    if kind == "remove" and line.repeats():
        line.remove(draw(st.sampled_from(line.repeats())))
        return True
    if kind in ("pull", "push") and len(line.entries) > 1:
        before, entry = sorted(draw(st.permutations(line.entries))[:2])
        if kind == "pull":
            return Passing(work).pull(line, entry, before)
        uses = [u for r in work.fleeting[line.place[before]] for u in line.uses[r] if u > before]
        return bool(uses) and Passing(work).push(line, before, min(uses))
    return False


@settings(max_examples=trials(150), **EXAMPLES)
@given(st.data())
def test_every_change_is_counted_as_the_simulator_counts(data):
    drawn = data.draw(st.one_of(programs(), mountains()))
    work = model(drawn) if isinstance(drawn, tuple) else CostModel(drawn)
    line = Line(work)
    for _ in range(data.draw(st.integers(1, 12))):
        before = state(line)
        line.begin()
        if changed(line, data.draw) and data.draw(st.booleans()):
            line.commit()
        else:
            line.rollback()
            assert state(line) == before
        assert line.profile.tolist() == work.simulator.profile(order(line))
        assert line.extra == sum(work.costs[p] for p in line.places) - work.total
        assert work.runs(line.places)


@settings(max_examples=trials(50), **EXAMPLES)
@given(st.data())
def test_a_line_of_a_schedule_is_the_line_that_led_to_it(data):
    line = Line(model(data.draw(mountains())))
    for _ in range(6):
        line.begin()
        end = line.commit if changed(line, data.draw) else line.rollback
        end()
    again = Line(line.work, line.places)

    assert again.profile.tolist() == line.profile.tolist()
    assert (again.extra, again.peak, again.places) == (line.extra, line.peak, line.places)


def test_a_repeat_serves_who_reads_after_it_and_is_undone_by_taking_it_out():
    line = Line(model(chain(3)))
    before = state(line)

    assert Reruns(line.work).again(line, 1, line.entries[-2], 0)
    assert line.places == [0, 1, 2, 3, 1, 4, 5]
    line.remove(line.repeats()[0])
    assert state(line) == before


def test_what_served_a_repeat_alone_goes_with_it():
    made = program("a = Tanh x", "b = Exp a", "c = Neg b", "d = Add c b", outputs="d")
    line = Line(CostModel(made, [1] * 4))

    assert Reruns(line.work).again(line, 1, line.entries[-1], 0)
    assert line.places == [0, 1, 2, 0, 1, 3]
    line.remove(line.runs[1][1])
    assert line.places == [0, 1, 2, 3]


def test_there_is_room_between_two_entries_for_many_runs():
    line = Line(model(chain(3)))
    reader, runs = line.entries[-1], 0
    while (free := line.before(reader)) is not None:
        line.add(free, 0)
        runs += 1

    assert runs > 40
    assert reader in line.place


def test_the_most_between_two_entries_is_that_of_the_profile():
    line = Line(model(chain(3)))
    first, *_, last = line.entries

    assert line.most(first, last) == int(line.profile[1:-1].max())
    assert line.most(first, line.entries[1]) == 0
