from __future__ import annotations

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import program

from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena, high_water
from gradtool.planning.liveness import Lifetime, lifetimes
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.packing import load_profile, overlap, place
from gradtool.planning.plan import ALWAYS_LIVE

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}
FIVE = ("a = Tanh x", "b = Mul a w", "c = Exp b", "d = Mul c a", "y = Add d b")


def buffers(plan):
    return {b.name: b for b in plan.buffers}


def home(plan):
    return {plan.program.values[v].name: b for b in plan.buffers for v in b.values}


def bound(plan, feeds, parameters=None):
    executor = Executor(plan, open_device("cpu"), (parameters or {}).__getitem__)
    for name, array in feeds.items():
        executor.set_input(name, array)
    return executor


def run(plan, feeds, parameters=None):
    executor = bound(plan, feeds, parameters)
    executor.step()
    return executor.outputs()


# ------------------------------------------------------------------------ worked by hand


def test_five_nodes_worked_by_hand():
    """Each value takes 64 bytes; w and x are always live.

    step               live
    0  a = Tanh x      w x a          192
    1  b = Mul a w     w x a b        256
    2  c = Exp b       w x a b c      320
    3  d = Mul c a     w x a b c d    384  the peak
    4  y = Add d b     w x b d y      320
    """
    plan = no_recompute(program(*FIVE, outputs="y", parameters="w"))
    profile = load_profile(plan.buffers, 5)

    assert profile.tolist() == [192, 256, 320, 384, 320]
    assert (plan.peak, plan.peak_live, plan.peak_step) == (384, 384, 3)
    assert plan.regions(3) == {"parameters": 64, "inputs": 64, "activations": 256}
    assert plan.regions(4) == {"parameters": 64, "inputs": 64, "activations": 128, "outputs": 64}


def test_five_nodes_in_place_worked_by_hand():
    """c dies where d is made, and d where y is made: one buffer holds all three, called by c.

    step               live
    0  a = Tanh x      w x a          192  (x is an input: not overwritten)
    1  b = Mul a w     w x a b        256  (a is read again)
    2  c = Exp b       w x a b c      320  (b is read again) the peak
    3  d = Mul c a     w x a b cd     320
    4  y = Add d b     w x b cdy      256
    """
    plan = no_recompute(program(*FIVE, outputs="y", parameters="w", in_place=True))

    assert load_profile(plan.buffers, 5).tolist() == [192, 256, 320, 320, 256]
    assert plan.peak == 320
    (shared,) = [buffer for buffer in plan.buffers if len(buffer.values) > 1]
    assert (shared.name, shared.region, shared.first, shared.last) == ("c", "outputs", 2, 4)
    assert [plan.program.values[v].name for v in shared.values] == ["c", "d", "y"]
    assert [plan.program.values[v].name for v in plan.also(shared)] == ["d", "y"]


def test_a_program_without_steps_holds_its_inputs():
    plan = no_recompute(program(outputs="x", parameters="w"))

    assert (plan.peak, plan.peak_live) == (128, 128)


def test_sizes_are_rounded_up_to_whole_lines():
    plan = no_recompute(program("y = Exp x", outputs="y", sizes={"x": 17, "y": 1}))

    assert buffers(plan)["x"].bytes == 128
    assert buffers(plan)["y"].bytes == 64


# ------------------------------------------------------------------------------ lifetimes


def test_a_view_takes_nothing_and_keeps_its_storage_alive():
    plan = no_recompute(
        program("a = Exp x", "b = Neg x", "c = Abs b", "y = Add v c", outputs="y", views={"v": "a"})
    )

    assert "v" not in buffers(plan)
    assert buffers(plan)["a"].last == 3


def test_a_view_of_a_view_keeps_the_first_storage_alive():
    views = {"v": "a", "u": "v"}
    plan = no_recompute(program("a = Exp x", "b = Neg x", "y = Add u b", outputs="y", views=views))

    assert buffers(plan)["a"].last == 2


def test_an_output_that_is_a_view_keeps_its_storage_to_the_end():
    plan = no_recompute(
        program(
            "a = Exp x", "b = Neg a", "y = Abs b", outputs="y v", views={"v": "a"}, in_place=True
        )
    )

    assert buffers(plan)["a"].last == 2
    assert buffers(plan)["a"].values == (1,)


def test_a_workspace_lives_for_one_step():
    plan = no_recompute(program("a = Exp x", "y = Neg a", outputs="y", work={"a": 1000}))
    (work,) = (b for b in plan.buffers if b.region == "workspace")

    assert (work.first, work.last, work.bytes) == (0, 0, 1024)
    assert plan.peak == 64 + 64 + 1024


def test_a_value_that_nobody_reads_has_room_where_it_is_written():
    plan = no_recompute(program("a = Exp x", "y = Neg x", outputs="y"))

    assert (buffers(plan)["a"].first, buffers(plan)["a"].last) == (0, 0)


def test_values_without_elements_take_nothing():
    plan = no_recompute(
        program("a = Exp x", "y = Neg a", outputs="y", sizes={"x": 0, "a": 0, "y": 0})
    )

    assert plan.peak == 0
    assert run(plan, {"x": np.zeros(0, np.float32)})["y"].shape == (0,)


# ------------------------------------------------------------------------------- in place


@pytest.mark.parametrize(
    ("steps", "shared"),
    [
        pytest.param(("h = Exp x", "y = Neg h"), True, id="it dies"),
        pytest.param(("h = Exp x", "y = Mul h h"), True, id="it dies in two slots"),
        pytest.param(("h = Exp x", "y = Sub w h"), True, id="it dies in the second slot"),
        pytest.param(
            ("h = Exp x", "y = Sum h w h"), False, id="a slot that may not be overwritten"
        ),
        pytest.param(("h = Exp x", "y = Sum w x h"), False, id="the third slot"),
        pytest.param(("h = Exp x", "y = Neg h", "z = Neg h"), False, id="it is read later"),
        pytest.param(("h = Exp x", "y = Add h v"), False, id="another view of it is read"),
        pytest.param(("h = Exp x", "y = Neg h", "z = Neg v"), False, id="a view is read later"),
        pytest.param(("h = Exp x", "y = Neg v"), True, id="through a view of all of it"),
    ],
)
def test_what_may_be_overwritten(steps, shared):
    outputs = "y z" if len(steps) == 3 else "y"
    views = {"v": "h"} if any(" v" in s for s in steps) else {}
    options = {"outputs": outputs, "parameters": "w", "views": views}
    feeds = {"x": np.linspace(-1, 1, 16, dtype=np.float32)}
    parameters = {"w": np.linspace(2, 3, 16, dtype=np.float32)}
    plan = no_recompute(program(*steps, **options, in_place=True))
    plain = no_recompute(program(*steps, **options))

    assert (home(plan)["h"] is home(plan)["y"]) == shared
    assert (
        run(plan, feeds, parameters)["y"].tobytes() == run(plain, feeds, parameters)["y"].tobytes()
    )


def test_an_output_is_never_overwritten():
    plan = no_recompute(program("h = Exp x", "y = Neg h", outputs="h y", in_place=True))
    x = np.linspace(-1, 1, 16, dtype=np.float32)

    assert np.array_equal(run(plan, {"x": x})["h"], np.exp(x))


def test_the_storage_of_an_output_is_never_overwritten():
    plan = no_recompute(
        program("h = Exp x", "y = Neg h", outputs="y v", views={"v": "h"}, in_place=True)
    )
    x = np.linspace(-1, 1, 16, dtype=np.float32)

    assert np.array_equal(run(plan, {"x": x})["v"], np.exp(x))


def test_a_value_of_another_size_is_not_overwritten():
    plan = no_recompute(program("h = Exp x", "y = Add h w", outputs="y", parameters="w",
                        sizes={"x": 1, "h": 1}, in_place=True))  # fmt: skip

    assert buffers(plan)["h"].bytes == buffers(plan)["w"].bytes == 64
    assert buffers(plan)["h"].offset != buffers(plan)["y"].offset


# ---------------------------------------------------------------------------- any program

UNARY, BINARY = ("Neg", "Abs", "Tanh", "Exp"), ("Add", "Sub", "Mul")


@st.composite
def programs(draw):
    """Random DAGs over elementwise operators, with views, several outputs and workspaces."""
    names, steps, views, sizes = ["x", "w"], [], {}, {}
    size = draw(st.sampled_from([1, 16, 40]))
    for index in range(draw(st.integers(1, 14))):
        name = f"v{index}"
        if draw(st.integers(0, 5)) == 0 and index:
            views[name] = draw(st.sampled_from([n for n in names if n.startswith("v")]))
        else:
            op, count = draw(
                st.one_of(
                    st.tuples(st.sampled_from(UNARY), st.just(1)),
                    st.tuples(st.sampled_from(BINARY), st.just(2)),
                    st.tuples(st.just("Sum"), st.integers(1, 4)),
                )
            )
            reads = [draw(st.sampled_from(names)) for _ in range(count)]
            steps.append(f"{name} = {op} {' '.join(reads)}")
        names.append(name)
    made = [n for n in names if n.startswith("v")]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    work = {n: draw(st.integers(1, 300)) for n in made if n not in views and draw(st.booleans())}
    sizes = dict.fromkeys(names, size)
    return {"steps": steps, "outputs": " ".join(outputs), "views": views, "sizes": sizes}, work


def build(drawn, *, in_place=True, work=None):
    drawn = dict(drawn)
    return program(*drawn.pop("steps"), parameters="w", work=work, in_place=in_place, **drawn)


def feeds(drawn):
    size = drawn["sizes"]["x"]
    rng = np.random.default_rng(0)
    return (
        {"x": rng.standard_normal(size).astype(np.float32)},
        {"w": rng.standard_normal(size).astype(np.float32)},
    )


@given(programs())
@settings(max_examples=trials(80), **EXAMPLES)
def test_no_two_live_buffers_overlap(drawn):
    plan = no_recompute(build(*drawn[:1], work=drawn[1]))

    assert overlap(plan.buffers) is None
    for i, a in enumerate(plan.buffers):
        for b in plan.buffers[i + 1 :]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
            assert apart or not together, (a, b)


@pytest.mark.exhaustive
@given(programs())
@settings(max_examples=trials(80), **EXAMPLES)
def test_a_plan_holds_everything_at_every_step(drawn):
    made = build(drawn[0], work=drawn[1])
    plan = no_recompute(made)
    home = {v: b for b in plan.buffers for v in b.values}
    profile = load_profile(plan.buffers, len(made.steps))

    assert (
        plan.peak_live
        == profile.max()
        <= plan.peak
        == max(b.offset + b.bytes for b in plan.buffers)
    )
    assert profile[plan.peak_step] == plan.peak_live
    assert all(b.offset % 64 == b.bytes % 64 == 0 for b in plan.buffers)
    for index, step in enumerate(made.steps):
        for value in (*step.reads, *step.writes):
            buffer = home[made.storage(value)]
            assert buffer.first <= index <= buffer.last or buffer.region in ALWAYS_LIVE
    for value in made.outputs:
        assert home[made.storage(value)].last == max(len(made.steps) - 1, 0)


@pytest.mark.exhaustive
@given(programs())
@settings(max_examples=trials(80), **EXAMPLES)
def test_writing_in_place_keeps_every_bit(drawn):
    arrays = feeds(drawn[0])
    with np.errstate(all="ignore"):
        ours = run(no_recompute(build(drawn[0])), *arrays)
        plain = run(no_recompute(build(drawn[0], in_place=False)), *arrays)

    assert {k: v.tobytes() for k, v in ours.items()} == {k: v.tobytes() for k, v in plain.items()}


@given(programs())
@settings(max_examples=trials(40), **EXAMPLES)
def test_nothing_is_read_after_it_died_and_the_arena_is_as_large_as_planned(drawn):
    plan = no_recompute(build(drawn[0]))
    executor = bound(plan, *feeds(drawn[0]))
    with np.errstate(all="ignore"):
        check_arena(executor)

        assert high_water(executor) <= plan.peak == len(executor.arena)


@given(programs())
@settings(max_examples=trials(20), **EXAMPLES)
def test_planning_in_place_never_costs_memory_and_is_deterministic(drawn):
    made = build(drawn[0])

    assert no_recompute(made) == no_recompute(made)
    assert no_recompute(made).peak_live <= no_recompute(build(drawn[0], in_place=False)).peak_live


# -------------------------------------------------------------------------------- packing


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9), st.integers(0, 9)), max_size=30))
@settings(max_examples=trials(200), **EXAMPLES)
def test_packing_wastes_little_and_never_overlaps(drawn):
    wanted = [
        Lifetime(str(i), "activations", 64 * size, min(a, b), max(a, b))
        for i, (size, a, b) in enumerate(drawn)
    ]
    packed = place(wanted)
    size = packed.size
    spans = [(b, o, o + b.bytes) for b, o in zip(wanted, packed.offsets, strict=True)]

    assert size >= load_profile(wanted, 10).max()
    assert size <= sum(b.bytes for b in wanted)
    for i, (a, start, stop) in enumerate(spans):
        assert start >= 0
        assert stop <= size
        for b, other, end in spans[i + 1 :]:
            together = a.first <= b.last and b.first <= a.last
            assert stop <= other or end <= start or not together


def test_lifetimes_list_what_is_always_live_first():
    made = lifetimes(program(*FIVE, outputs="y", parameters="w"))

    assert [b.name for b in made] == ["w", "x", "a", "b", "c", "d", "y"]


def test_storage_that_an_output_is_a_window_on_counts_as_that_output():
    plan = no_recompute(program("a = Exp x", "b = Neg a", outputs="v b", views={"v": "a"}))

    assert buffers(plan)["a"].region == "outputs"
    assert buffers(plan)["x"].region == "inputs"


def test_an_output_that_is_a_window_on_an_input_stays_an_input():
    plan = no_recompute(program("a = Exp x", outputs="v a", views={"v": "x"}))

    assert buffers(plan)["x"].region == "inputs"
