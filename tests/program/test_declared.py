"""What a step declares once some of its outputs are not wanted."""

from __future__ import annotations

from graphs import parse

import gradtool as gt
from gradtool.planning.schedule import Schedule, pruned, replay
from gradtool.program.declared import narrowed
from gradtool.program.flatten import flatten
from gradtool.workloads.recompute import prepared

NORM = """g (float[64, 3, 8, 8] x, float[3] w, float[3] b, float[3] m, float[3] v) => (y) {
    n, p, q = BatchNormalization <training_mode = 1> (x, w, b, m, v) r = Tanh (n)
    y = GlobalAveragePool (r)
}"""


def replayed():
    """The program of a norm whose statistics are computed again, and that of a plain step."""
    program = flatten(prepared(gt.grad(parse(NORM, "w b m v"), loss="sum").model))
    order = [0, 1, 2, 3, 0, *range(4, len(program.steps))]
    return program, replay(program, pruned(program, Schedule.of(order)))


def test_a_clone_that_writes_less_needs_no_more_work_or_room():
    program, found = replayed()
    norm = program.steps[0]
    (clone,) = [s for s in narrowed(found, program.steps).steps if s.stage == "recompute"]

    assert clone.outputs[0] is None
    assert clone.flops < norm.flops
    assert sum(s.bytes for s in clone.workspace) <= sum(s.bytes for s in norm.workspace)


def test_steps_that_write_all_they_did_stay_as_they_are():
    program, found = replayed()
    after = narrowed(found, program.steps)

    same = [s for s in found.steps if s.stage != "recompute"]
    assert [s for s in after.steps if s.stage != "recompute"] == same
