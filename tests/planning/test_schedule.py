from __future__ import annotations

import numpy as np
import pytest
from programs import program

from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.schedule import Schedule, pruned, replay

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def run(replayed):
    executor = Executor(
        no_recompute(replayed), open_device("cpu"), lambda _: np.full(16, 2, np.float32)
    )
    executor.set_input("x", np.linspace(-1, 1, 16, dtype=np.float32))
    executor.step()
    return executor.outputs()


def test_a_step_run_again_is_read_by_what_comes_after_it():
    """h is dropped after its first reader and computed again for its second."""
    before = program("h = Tanh x", "a = Exp h", "b = Exp a", "y = Mul b h", outputs="y")
    after = replay(before, Schedule.of((0, 1, 2, 0, 3)))

    names = [v.name for v in after.values]
    assert [s.name for s in after.steps] == ["h", "a", "b", "h_recompute", "y"]
    assert names[after.steps[4].inputs[1]] == "h_recompute"
    assert (after.steps[3].stage, after.steps[3].source) == ("recompute", "h")
    assert run(after)["y"].tobytes() == run(before)["y"].tobytes()


def test_an_instance_that_nobody_reads_is_left_out():
    before = program("h = Tanh x", "a = Exp h", "y = Mul a h", outputs="y")

    assert pruned(before, Schedule.of((0, 0, 1, 2))).order == (0, 1, 2)
    assert pruned(before, Schedule.of((0, 1, 2, 1))).order == (0, 1, 2)


def test_an_output_is_computed_once():
    before = program("h = Tanh x", "y = Exp h", "z = Exp y", outputs="y z")

    assert pruned(before, Schedule.of((0, 1, 0, 1, 2))).order == (0, 1, 2)


def test_a_view_of_a_recomputed_value_is_a_view_of_its_clone():
    before = program(
        "h = Tanh x", "a = Exp r", "b = Exp a", "y = Mul b r", outputs="y", views={"r": "h"}
    )
    after = replay(before, Schedule.of((0, 1, 2, 0, 3)))
    read = after.values[after.steps[4].inputs[1]]

    assert read.name == "r_recompute"
    assert after.values[read.view.base].name == "h_recompute"


def test_the_third_instance_has_a_number():
    assert Schedule.of((0, 1, 0, 0)).suffixes == ("", "", "_recompute", "_recompute_2")
    assert Schedule.of((0, 1, 0), "_mirror").recomputed == (0,)


def test_a_read_before_its_value_is_an_error():
    before = program("h = Tanh x", "y = Exp h", outputs="y")

    with pytest.raises(ValueError, match="y reads h, which is computed later"):
        replay(before, Schedule.of((1, 0)))
