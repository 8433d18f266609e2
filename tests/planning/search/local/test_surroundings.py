"""What the rest of a schedule asks of a window, in examples worked by hand."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from mountain import mountain
from programs import program

from gradtool.planning.search.local.surroundings import Surroundings
from gradtool.planning.simulate import Simulator
from gradtool.program.overwriting import overwriting

A, B, C, D, E, F, G, H = range(8)
COSTS = [9, *[1] * 7]


def around(order):
    return Surroundings(Simulator(mountain().program), order, COSTS)


def overwritten():
    """A parameter w that is read by e and then overwritten by n."""
    made = program(
        "h = Tanh x", "e = Exp w", "n = Sub w h", "c = Exp n", "d = Tanh c", "y = Mul d e",
        outputs="n", parameters="w", in_place=True,
    )  # fmt: skip
    number = {v.name: i for i, v in enumerate(made.values)}
    return overwriting(replace(made, state=MappingProxyType({number["w"]: number["n"]})))


def test_what_comes_in_and_what_has_to_leave():
    """The forward values are read from the middle on; d there, b and a behind it."""
    simulator = Simulator(mountain().program)
    root = {s: simulator.writes[s][0] for s in range(8)}
    window = around(range(8)).window(4, 6, 1 << 20, {E, F}, 0)

    assert window.steps == (E, F)
    assert window.entering == {root[C]: 5, root[D]: 4}
    assert window.owed == (root[F],)
    assert window.settled == {root[A], root[B]}
    assert window.first == {E, F}
    assert window.room == (1 << 20) - simulator.fixed - 2 * 64


def test_what_moves_may_run_twice_and_what_comes_in_once_more():
    """D reads the first c; a is there for later."""
    window = around((A, B, C, D, E, C, F, G, H)).window(3, 6, 1 << 20, {C, D}, 0)

    assert dict(window.runs) == {D: 2, E: 1, C: 1}
    assert window.frozen == {E}


def test_so_many_others_may_come_in_for_the_sake_of_what_is_wanted_the_cheapest_first():
    """F reads c and e, a and b are read later; e needs d in its turn."""
    opened = [around(range(8)).window(5, 6, 1 << 20, {F}, more) for more in (0, 1, 2, 4, 9)]

    assert [set(w.runs) - {F} for w in opened] == [
        set(), {B}, {B, C}, {B, C, E, A}, {B, C, E, A, D},
    ]  # fmt: skip


def test_a_step_that_reads_what_was_overwritten_does_not_come_in():
    made = overwritten()
    window = Surroundings(Simulator(made), range(6), COSTS).window(3, 6, 1 << 20, {3, 4, 5}, 9)

    assert 1 not in window.runs


def test_what_reads_a_parameter_keeps_its_place_before_what_overwrites_it():
    window = Surroundings(Simulator(overwritten()), range(6), COSTS).window(0, 6, 0, range(6), 0)

    assert window.before == ((1, 2),)


def test_steps_that_run_once_keep_their_order():
    made = mountain().program
    steps = tuple(replace(s, recomputable=i not in (A, C)) for i, s in enumerate(made.steps))
    opened = Surroundings(Simulator(replace(made, steps=steps)), range(8), COSTS)

    assert opened.window(0, 3, 0, {A, B, C}, 0).before == ((A, C),)
    assert opened.window(1, 3, 0, {B, C}, 0).before == ()
    assert [opened.may_repeat(s) for s in (A, B, C)] == [False, True, False]
