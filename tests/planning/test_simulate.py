"""The one simulator: by hand, and against the buffers of the program that a schedule becomes."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType

import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program
from random_programs import orders, programs

from gradtool.planning.liveness import lifetimes
from gradtool.planning.packing import load_profile
from gradtool.planning.schedule import Schedule, pruned, replay
from gradtool.planning.simulate import Simulator
from gradtool.program.donation import overwriting

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
FIVE = ("a = Tanh x", "b = Mul a w", "c = Exp b", "d = Mul c a", "y = Add d b")


def numbers(made, names):
    """Values by name, as the simulator knows them."""
    known = {value.name: number for number, value in enumerate(made.values)}
    return tuple(known[name] for name in names.split())


@settings(max_examples=trials(300), **EXAMPLES)
@given(st.data())
def test_the_simulator_says_what_lifetimes_of_the_replayed_program_say(data):
    before = data.draw(programs())
    schedule = pruned(before, Schedule.of(data.draw(orders(before.steps))))
    after = replay(before, schedule)

    expected = load_profile(lifetimes(after), len(after.steps)).tolist()
    assert Simulator(before).profile(schedule.order) == expected


@pytest.mark.parametrize(
    ("in_place", "order", "expected"),
    [
        pytest.param(False, (0, 1, 2, 3, 4), [192, 256, 320, 384, 320], id="in order"),
        pytest.param(True, (0, 1, 2, 3, 4), [192, 256, 320, 320, 256], id="in place"),
        # a ends at b, lies there, and comes back beside b and c
        pytest.param(True, (0, 1, 2, 0, 3, 4), [192, 192, 256, 320, 320, 256], id="a again"),
        pytest.param(False, (0, 1, 2, 0, 3, 4), [192, 256, 256, 320, 384, 320], id="a plainly"),
    ],
)
def test_five_nodes_worked_by_hand(in_place, order, expected):
    """Each value takes 64 bytes; w and x are always live."""
    made = program(*FIVE, outputs="y", parameters="w", in_place=in_place)

    assert Simulator(made).profile(order) == expected
    assert Simulator(made).peak(order) == max(expected)


def test_storages_are_told_by_what_steps_do_with_them():
    """v is a window on a; x and w are always there, so no step touches them."""
    made = program(
        "a = Tanh x", "b = Mul v w", "y = Add b a", outputs="y a", parameters="w",
        views={"v": "a"}, sizes=dict.fromkeys("axwbyv", 20), work={"b": 100}, in_place=True,
    )  # fmt: skip
    simulator = Simulator(made)
    a, b, y = numbers(made, "a b y")

    assert simulator.reads == [(), (a,), (b, a)]
    assert simulator.writes == [(a,), (b,), (y,)]
    assert simulator.bytes == {a: 128, b: 128, y: 128}
    assert simulator.work == [0, 128, 0]
    assert (simulator.fixed, simulator.live_out, simulator.read) == (256, {a, y}, {a, b})
    assert (simulator.donates, simulator.targets) == ([(), (), (b,)], [-1, -1, y])


def test_a_program_without_steps_holds_what_is_always_alive():
    assert Simulator(program(outputs="x", parameters="w")).peak(()) == 128
    assert Simulator(program(outputs="x", parameters="w")).profile(()) == []


def test_what_nobody_ever_reads_has_room_while_it_is_computed():
    made = program("a = Tanh x", "y = Exp x", outputs="y", sizes={"a": 32})

    assert Simulator(made).profile((0, 1)) == [64 + 128, 64 + 64]


def test_an_instance_that_nobody_reads_takes_nothing_where_another_is_read():
    """The first h is dead; so is the third."""
    made = program("h = Tanh x", "y = Exp h", outputs="y")

    assert Simulator(made).profile((0, 0, 1, 0)) == [64, 128, 192, 128]


def test_an_output_stays_from_where_it_is_first_computed():
    """h takes 128 bytes once, however often its step runs; z is computed beside it."""
    made = program("h = Tanh x", "z = Exp x", outputs="h z", sizes={"h": 32})

    assert Simulator(made).profile((0, 1, 0)) == [192, 256, 256]
    assert Simulator(made).profile((1, 0)) == [128, 256]


def test_an_output_is_not_written_over_and_nothing_over_an_input():
    made = program("h = Tanh x", "y = Exp h", outputs="h y", in_place=True)

    assert Simulator(made).profile((0, 1)) == [128, 192]


def test_what_is_written_over_an_input_that_is_read_again_takes_bytes_of_its_own():
    made = program("h = Tanh x", "a = Exp h", "y = Mul a h", outputs="y", in_place=True)

    assert Simulator(made).profile((0, 1, 2)) == [128, 192, 192]
    assert Simulator(made).profile((0, 1, 0, 2)) == [128, 128, 192, 192]


def test_an_output_that_runs_again_takes_nothing_that_could_be_saved():
    """The second y is none: nothing is written where a second h ends, which is there beside y."""
    made = program("h = Tanh x", "y = Exp h", "z = Neg y", outputs="y z", in_place=True)

    assert Simulator(made).profile((0, 1, 0, 1, 2)) == [128, 128, 192, 192, 192]


def test_of_a_step_that_runs_again_only_what_is_no_output_is_there_again():
    """Its first output y stays from the first run on; z of 128 bytes is away beside d."""
    made = program(
        "h = Tanh x", "y = Exp h", "z = Exp h", "b = Neg z", "d = Exp b", "c = Mul d z",
        outputs="y c", sizes={"z": 32},
    )  # fmt: skip
    h, first, second, *last = made.steps
    both = dataclasses.replace(first, outputs=(*first.outputs, *second.outputs))
    made = dataclasses.replace(made, steps=(h, both, *last))

    assert Simulator(made).writes[1] == numbers(made, "y z")
    assert Simulator(made).profile((0, 1, 2, 3, 1, 4)) == [128, 320, 384, 320, 384, 384]


def test_a_workspace_counts_while_its_step_runs_each_time():
    made = program("h = Tanh x", "a = Exp h", "y = Mul a h", outputs="y", work={"h": 100})

    assert Simulator(made).profile((0, 1, 0, 2)) == [256, 192, 320, 256]


def test_the_next_value_of_a_parameter_takes_no_bytes():
    made = program("h = Tanh x", "n = Sub w h", outputs="n", parameters="w", in_place=True)
    w, n = numbers(made, "w n")
    stepping = overwriting(dataclasses.replace(made, state=MappingProxyType({w: n})))

    assert Simulator(made).profile((0, 1)) == [192, 192]
    assert Simulator(stepping).profile((0, 1)) == [192, 192]
    assert Simulator(stepping).donates == [(), ()]
