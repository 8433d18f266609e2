"""Plans that take turns of loops again: their peaks, their work, and what is proven of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from conftest import sampled
from graphs import parse

import gradtool as gt
from gradtool.errors import OverBudget, UsageError
from gradtool.exec import agreement
from gradtool.exec.run import execute
from gradtool.workloads import strategies
from gradtool.workloads.budgets.budget_queries import work_of
from gradtool.workloads.budgets.forms import Forms
from gradtool.workloads.budgets.frontier import frontier
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.budgets.search import Search, at_most, within
from gradtool.workloads.loops import Loop, formed, loops_of
from gradtool.workloads.plans import extra_of, workload
from gradtool.workloads.run_options import RunOptions

QUICK = Search(0.03)


def scan(turns: int = 64, size: int = 1000) -> str:
    """A Scan that stacks four values a turn and carries one."""
    zeros = ", ".join("0" * turns)
    return f"""g (float[{size}] x, float k) => (l) <float[{turns}] s = {{{zeros}}}> {{
        y = Scan <num_scan_inputs = 1, body = b (float[{size}] c, float u) => (float[{size}] n) {{
            kc = Mul (k, c) a = Sin (kc) ka = Mul (k, a) d = Cos (ka) ca = Add (c, a)
            n = Add (ca, d)
        }}> (x, s)
        l = ReduceSum <keepdims = 0> (y)
    }}"""


def two(turns: int = 16) -> str:
    """A recurrent Scan over what another one wrote, and weights that both read."""
    body = """body = b (float[4, 8] c, float[4, 8] u) => (float[4, 8] n, float[4, 8] r) {
            m = MatMul (c, w) s = Add (m, u) t = Tanh (s) e = Sigmoid (t) n = Mul (t, e)
            r = Identity (n)
        }"""
    return f"""g (float[4, 8] h, float[{turns}, 4, 8] x, float[8, 8] w) => (l) {{
        a, p = Scan <num_scan_inputs = 1, {body}> (h, x)
        b, q = Scan <num_scan_inputs = 1, {body}> (a, p)
        l = ReduceMean <keepdims = 0> (q)
    }}"""


def graph(text, weights):
    return gt.grad(parse(text, weights), wrt=weights.split()).model


@pytest.fixture(scope="module")
def work():
    return workload(graph(scan(), "k"))


def test_a_plan_reaches_into_a_scan(work):
    least = within(work, Budget.of("min"), QUICK)
    carries = 64 * 1024 * 4

    assert least.peak < carries < work.kept.peak
    assert least.peak < 0.2 * work.kept.peak
    assert "takes turns again" in least.notes[-1]


def test_more_memory_never_costs_more_work_and_no_plan_beats_its_bound(work):
    points = frontier(work, search=QUICK)
    shares = [strategies.STRATEGIES[name](work) for name in ("mirror", "sqrt", "segments")]

    for low, high in itertools.pairwise(points):
        assert low.peak < high.peak
        assert work_of(low) > work_of(high)
    for other in (*points, *shares):
        extra = extra_of(work, other)
        found = within(work, Budget(other.peak), QUICK)
        assert found.proof.bound <= work_of(found) <= extra
        assert at_most(work, extra / found.proof.total, QUICK).peak <= other.peak
        assert all(each.proof.least <= other.peak for each in points)


def test_work_is_what_the_step_computes_more(work):
    for each in frontier(work, search=QUICK):
        assert work_of(each) == extra_of(work, each)


def test_a_budget_that_no_form_reaches_says_of_which_that_is_proven(work):
    with pytest.raises(OverBudget, match=r"cannot be reached.* in [0-9] other forms"):
        within(work, Budget.of("20KB"), QUICK)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sampled(["segments", "mirror", "sqrt", "min-cut", "optimal"], 3))
@pytest.mark.parametrize("text", [scan(12), two()])
def test_every_plan_gives_the_same_bits_in_the_memory_planned(text, name):
    model = graph(text, "k" if "float k" in text else "w")
    sized = workload(model)
    draw = np.random.default_rng(0)
    arrays = {
        v.name: draw.standard_normal(v.shape.numpy()).astype(np.float32)
        for v in model.graph.inputs if not v.is_initializer()
    }  # fmt: skip
    found = strategies.STRATEGIES[name](sized)
    expected = execute(model, arrays, RunOptions(device="cpu", kernels="numpy"))

    agreement.check(sized, found, arrays, expected)


def test_two_loops_are_decided_one_by_one():
    sized = workload(graph(two(), "w"))
    forms = [each.turns for each in loops_of(sized).forms]

    assert {len({name.split("/")[0] for name in turns}) for turns in forms} == {1, 2}


def test_mirroring_takes_turns_again_that_are_cheap():
    assert strategies.mirror(workload(graph(scan(12), "k"))).form is not None
    assert strategies.mirror(workload(graph(two(), "w"))).form is None  # a product in each turn


def test_a_loop_that_is_to_be_kept_is():
    sized = workload(graph(scan(12), "k"))
    (name,) = [node.name for node in sized.model.graph if node.op_type == "Scan"][:1]

    assert strategies.mirror(sized, keep=[name]).form is None


@pytest.mark.exhaustive
def test_an_open_number_of_turns_stays_open():
    text = two().replace("[16, 4, 8]", "[time, 4, 8]")
    training = graph(text, "w")
    least = gt.recompute(training, gt.Budget("min"), dims={"time": 16})
    draw = np.random.default_rng(0)

    assert least.plan.peak < 0.8 * least.kept.peak
    for time in (16, 5, 1):
        shapes = {"h": (4, 8), "x": (time, 4, 8)}
        feeds = {k: draw.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
        ours, kept = gt.run(least, feeds).gradients, gt.run(training, feeds).gradients
        np.testing.assert_array_equal(ours["w"], kept["w"])


def test_a_plan_in_a_file_says_which_turns_it_takes_again(tmp_path):
    training = graph(scan(12), "k")
    least = gt.recompute(training, gt.Budget("min"))
    gt.save_plan(least, tmp_path / "plan.json")
    again = gt.recompute(training, gt.load_plan(tmp_path / "plan.json"))
    text = (tmp_path / "plan.json").read_text()
    (tmp_path / "odd.json").write_text(text.replace('/grad/Scan",', '/grad/Other",'))

    assert again.plan.peak == least.plan.peak < 0.5 * least.kept.peak
    assert again.proof == least.proof
    with pytest.raises(UsageError, match=r"odd.json: no loop '.*/grad/Other' has"):
        gt.recompute(training, gt.load_plan(tmp_path / "odd.json"))


def test_a_plan_that_was_written_is_planned_further():
    training = graph(scan(16), "k")
    once = gt.recompute(training, "sqrt")
    least = gt.recompute(once, gt.Budget("min"))

    assert least.plan.peak < once.plan.peak
    feeds = {"x": np.linspace(-1, 1, 1000, dtype=np.float32)}
    ours, kept = gt.run(least, feeds).gradients, gt.run(training, feeds).gradients
    np.testing.assert_array_equal(ours["k"], kept["k"])


def test_times_are_of_loops_as_they_are(work):
    prices = QUICK.prices.of(work.program)
    timed = Search(0.03, prices=type(QUICK.prices)(prices, "ns"))

    assert isinstance(QUICK.answers(work), Forms)
    assert not isinstance(timed.answers(work), Forms)


def test_a_graph_without_loops_has_one_form():
    assert not loops_of(workload(graph("g (float[4] x, float[4] w) => (l) {"
                                       "a = Mul (x, w) l = ReduceSum <keepdims = 0> (a) }",
                                       "w"))).forms  # fmt: skip


def loop(**sizes) -> Loop:
    usual = {
        "inside": 100,
        "held": 0,
        "missing": 10,
        "states": 10,
        "slices": 0,
        "rows": 0,
        "sums": 0,
    }
    return Loop(name="l", count=100, most=100, **(usual | sizes))


def test_segments_are_as_long_as_keeps_least():
    # n/L · 10 + L · 100: of 100 turns, L = √10; of its divisors 2 gives 700 and 4 gives 650.
    assert loop().choice(1).lengths == (4,)
    assert loop().choice(1).bytes == 25 * 10 + 4 * 100
    # With one set of states a turn inside a segment: n/L · 10 + L · 10 + 100.
    assert loop().choice(2).lengths == (10, 1)
    assert loop().choice(2).bytes == 10 * 10 + 10 * 10 + 100


def test_turns_are_taken_one_at_a_time_where_states_are_small():
    assert loop(inside=2000, missing=1, states=1).choice(1).lengths == (1,)
    assert loop(inside=0, held=10).by_turns.lengths == ()
    assert loop(inside=0, held=10).choice(1).lengths == (10,)


def test_a_form_that_does_not_exist_is_refused(work):
    with pytest.raises(ValueError, match="no loop 'Scan' has 3 turns"):
        formed(work, {"Scan": 3})
