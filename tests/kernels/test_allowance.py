import bad_sizes
import numpy as np
import pytest

import gradtool as gt
from gradtool.ops.shared import runtime_limits as allowance
from gradtool.ops.shared.runtime_limits import Exhausted

DOUBLES = "a Loop that doubles a value, 60 turns at most"
ENDLESS = f"a Loop that never stops at its condition, {bad_sizes.MOST} turns at most"
WHILE = f"a Loop that stops at a condition, {bad_sizes.MOST} turns at most"
NESTED = """g (float[4] x) => (float loss) {
    y = Loop (n, , x) <body = outer (int64 i, bool k, float[4] h) => (bool k2, float[4] h2) {
        k2 = Identity (k)
        h2 = Loop (n, , h) <body = inner (int64 j, bool l, float[4] u) => (bool l2, float[4] u2) {
            l2 = Identity (l)
            u2 = Tanh (u)
        }>
    }>
    loss = ReduceSum <keepdims = 0> (y)
}"""


@pytest.fixture
def loaded(model):
    """A model of the table of bad sizes, read."""

    def load(name):
        return gt.load(model(bad_sizes.LARGE[name]()))

    return load


def test_a_while_loop_of_any_number_of_turns_runs_to_its_end(loaded):
    result = gt.run(loaded(WHILE))

    assert np.isfinite(result.outputs["loss"])


def test_turns_are_counted_and_the_loop_is_named(loaded):
    with pytest.raises(Exhausted, match=r"Loop node .* goes on after 50 turns .* --max-turns"):
        gt.run(loaded(ENDLESS), max_turns=50)


def test_turns_of_loops_in_loops_count_together(model):
    forward = gt.load(model(NESTED, n=np.array(9, np.int64)))

    gt.run(forward, max_turns=9 + 9 * 9)
    with pytest.raises(Exhausted, match="89 turns"):
        gt.run(forward, max_turns=9 + 9 * 9 - 1)


def test_each_step_counts_from_nothing(model):
    forward = gt.load(model(NESTED, n=np.array(9, np.int64)))

    gt.run(forward, max_turns=9 + 9 * 9, repeat=5)


def test_a_value_that_doubles_stops_before_it_takes_too_much(loaded):
    with pytest.raises(Exhausted, match=r"Concat node .* sizes depend on data; the limit is 4096"):
        gt.run(loaded(DOUBLES), max_dynamic=4096)


def test_the_limit_of_bytes_is_that_of_the_plan_where_that_is_more():
    with allowance.of_step(planned=2**40):
        assert allowance.current().most_bytes == 2**40


def test_what_is_given_back_may_be_taken_again():
    with allowance.limited(None, 100), allowance.of_step(0):
        held = allowance.current()
        for _ in range(3):
            held.take(80)
            held.take(-80)
        held.take(80)
        with pytest.raises(Exhausted, match="needs 160 bytes"):
            held.take(80)


def test_the_command_line_sets_both(run, model):
    path = model(bad_sizes.LARGE[ENDLESS]())

    outcome = run("run", path, "--max-turns", "7")

    assert outcome.code == 4
    assert "after 7 turns" in outcome.err

    outcome = run("run", model(bad_sizes.LARGE[DOUBLES]()), "--max-dynamic", "1MiB")

    assert outcome.code == 4
    assert "the limit is 1048576" in outcome.err


def test_onnxruntime_keeps_no_such_limits(run, tiny_model):
    outcome = run("run", tiny_model, "--batch", "2", "--engine", "ort", "--max-turns", "7")

    assert outcome.code == 2
    assert "--max-turns" in outcome.err
