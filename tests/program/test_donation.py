"""Next values lie over the old ones where they may, and only there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import stepping

from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena, timed
from gradtool.planning.liveness import lifetimes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.orders.best import best_order
from gradtool.planning.orders.graph import StepGraph
from gradtool.planning.packing import load_profile
from gradtool.planning.schedule import Schedule, replay
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.program.donation import overwriting, write_after_read

STEP = ("h = Tanh x", "g = Mul h w", "u = Exp g", "n = Sub w u")


def over(made: Program) -> dict[str, str]:
    return {d.name: made.values[d.alias].name for d in made.values if d.alias is not None}


def executor(made: Program) -> Executor:
    found = Executor(no_recompute(made), open_device("cpu"), lambda _: np.full(16, 2, np.float32))
    found.set_input("x", np.linspace(-1, 1, 16, dtype=np.float32))
    return found


def test_a_next_value_takes_no_bytes():
    """x, w and n are 64 bytes each: h, g and u share one buffer more, n lies over w."""
    made = stepping(*STEP)

    assert over(made) == {"n": "w"}
    assert no_recompute(made).peak == 3 * 64
    assert [b.region for b in no_recompute(made).buffers if b.name == "w"] == ["parameters"]


def test_one_that_is_computed_after_the_last_read_does():
    """The step that writes n does not read w."""
    assert over(stepping("h = Mul x w", "n = Exp h")) == {"n": "w"}


SUMS = ("a = Tanh x", "s = Add a w", "b = Exp x", "t = Add b s", "c = Tanh x", "n = Add c t")


def summing(*steps: str, late: str = "update") -> Program:
    """A program whose sums are updates."""
    made = stepping(*steps)
    stages = [late if step.op == "Add" else "forward" for step in made.steps]
    steps = [replace(s, stage=stage) for s, stage in zip(made.steps, stages, strict=True)]
    return overwriting(replace(made, steps=tuple(steps)))


def test_sums_that_grow_term_by_term_lie_where_the_first_did():
    """x, w and one more buffer are 64 bytes each: s, t and n lie over w."""
    made = summing(*SUMS)

    assert over(made) == {"s": "w", "t": "w", "n": "w"}
    assert no_recompute(made).peak == 3 * 64
    found = executor(made)
    found.step()
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    np.testing.assert_allclose(found.outputs()["n"], 2 + 2 * np.tanh(x) + np.exp(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "late", "expected"),
    [
        ((*SUMS, "late = Exp t", "z = Mul late x"), "update", {"n": "w"}),
        (("a = Tanh x", "e = Exp w", "s = Add a w", "n = Add e s"), "update",
         {"s": "w", "n": "w"}),
        (SUMS, "backward", {"n": "w"}),
    ],
)  # fmt: skip
def test_only_what_nobody_else_reads_lies_there(steps, late, expected):
    assert over(summing(*steps, late=late)) == expected


@pytest.mark.parametrize(
    ("steps", "options", "why"),
    [
        ((*STEP, "late = Exp w", "z = Mul late x"), {}, "w is read later"),
        ((*STEP, "late = Exp r", "z = Mul late x"), {"views": {"r": "w"}}, "so is a window on it"),
        (("h = Tanh x", "n = MatMul h w"), {}, "a product does not work in place"),
        (("h = Tanh x", "n = Sub r h"), {"views": {"r": "w"}}, "a window is not the whole"),
        (STEP, {"sizes": {"n": 32, "u": 32}}, "the sizes differ"),
        (("n = Tanh x",), {"state": "x n"}, "an input is no parameter"),
    ],
)
def test_where_it_may_not(steps, options, why):
    assert over(stepping(*steps, **options)) == {}, why


def test_steps_start_from_the_same_parameters_after_a_rewind():
    made = stepping(*STEP)
    found = executor(made)
    found.step()
    once = found.outputs()["n"].copy()
    found.step()
    twice = found.outputs()["n"].copy()
    found.rewind()
    found.step()

    np.testing.assert_array_equal(found.outputs()["n"], once)
    assert (twice != once).any()
    timed(found, 3)
    np.testing.assert_array_equal(found.outputs()["n"], once)


def test_the_arena_is_checked_from_the_same_parameters():
    check_arena(executor(stepping(*STEP)))


def test_a_clone_that_reads_the_old_value_later_keeps_both():
    """Step g runs again after n is written, for y: n then needs a buffer of its own."""
    made = stepping(*STEP, "y = Mul n g", "n2 = Exp y")
    again = replay(made, Schedule.of((0, 1, 2, 3, 0, 1, 4, 5)))

    assert over(made) == {"n": "w"}
    assert over(again) == {}
    assert no_recompute(again).peak >= Simulator(made).peak((0, 1, 2, 3, 0, 1, 4, 5))


def test_orders_read_an_old_value_before_it_is_overwritten():
    """Without that, n could run before e, which reads w."""
    made = stepping("h = Tanh x", "e = Exp w", "f = Mul e h", "n = Sub w h", "z = Mul n f")
    number = {s.name: i for i, s in enumerate(made.steps)}

    assert list(write_after_read(made)) == [(number["e"], number["n"])]
    assert number["e"] in StepGraph(made).before[number["n"]]
    order = best_order(made).order
    assert order.index(number["e"]) < order.index(number["n"])


@settings(max_examples=trials(60), deadline=None, derandomize=True, database=None)
@given(st.lists(st.sampled_from(["Exp", "Mul", "Sub", "Tanh"]), min_size=1, max_size=8), st.data())
def test_a_simulated_step_is_the_one_that_is_planned(ops, data):
    """Random programs around a parameter: the bits are those of a program that overwrites none."""
    names = ["x", "w"]
    steps = []
    for index, op in enumerate(ops):
        count = 1 if op in ("Exp", "Tanh") else 2
        sources = data.draw(st.lists(st.sampled_from(names), min_size=count, max_size=count))
        steps.append(f"v{index} = {op} {' '.join(sources)}")
        names.append(f"v{index}")
    made = stepping(*steps, f"n = Sub w {names[-1]}")
    apart = replace(made, values=tuple(replace(d, alias=None) for d in made.values))
    order = range(len(made.steps))

    assert Simulator(made).profile(order) == load_profile(lifetimes(made), len(order)).tolist()
    found, expected = executor(made), executor(apart)
    with np.errstate(all="ignore"):
        found.step()
        expected.step()
    assert found.outputs()["n"].tobytes() == expected.outputs()["n"].tobytes()
    assert no_recompute(made).peak <= no_recompute(apart).peak
