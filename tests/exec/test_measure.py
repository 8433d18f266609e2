"""What a step takes beside its arena, and what a check compares where values are no numbers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena, high_water, measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned

ROOT = Path(__file__).parents[2]
TEXT = "g (string[2] x) => (y) { y = StringConcat (x, x) }"
SEQUENCE = "g (float[4, 3] x) => (y) { s = SplitToSequence (x) y = SequenceErase (s) }"


@pytest.mark.parametrize(
    ("text", "x"), [(TEXT, np.array(["a", "bc"], object)), (SEQUENCE, floats(4, 3))]
)
def test_text_and_sequences_are_compared_by_what_they_hold(text, x):
    gt.run(parse(text), {"x": x}, check_arena=True)


def test_text_that_changes_is_found():
    model = parse(TEXT)
    executor = Executor(planned(model, {}), open_device("cpu"), parameters_of(model))
    executor.set_input("x", np.array(["a", "bc"], object))
    words = iter(["first", "second"])
    (y,) = executor.program.outputs
    executor.calls.append(lambda: executor.dynamic.hold(y, np.array([next(words)], object)))

    with pytest.raises(GradtoolError, match="'y' changed"):
        check_arena(executor)


# --------------------------------------------------------------------- beside the arena

MOST = 256 * 1024


@pytest.fixture(scope="module")
def cnn():
    """A step whose results are as large as its inputs."""
    return lambda batch: gt.grad(
        gt.load(ROOT / "samples" / "cnn.onnx", batch=batch), loss="ce:logits", input_grad=["image"]
    )


def prepared(training):
    executor = Executor(gt.plan(training), open_device("cpu"), parameters_of(training.model))
    for name, array in gt.api.read_inputs(training.model, "random").items():
        executor.set_input(name, array)
    with np.errstate(all="ignore"):
        executor.step()
    return executor


def seen(executor, *, copy):
    """The most that a step and its results take, by tracemalloc, everything counted."""
    gc.collect()
    tracemalloc.start()
    try:
        with np.errstate(all="ignore"):
            executor.step()
        held = executor.outputs(copy=copy), executor.gradients(copy=copy)
        assert all(held)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.exhaustive
@pytest.mark.parametrize("copy", [True, False])
def test_copies_of_results_count_and_views_are_none(cnn, copy):
    found = {}
    for batch in (4, 32):
        executor = prepared(cnn(batch))
        with np.errstate(all="ignore"):
            found[batch] = measure(executor, 1, copy=copy)
        arrays = {**executor.outputs(), **executor.gradients()}
        results = sum(array.nbytes for array in arrays.values())
        copied = results if copy else 0

        assert copied <= found[batch].results <= copied + 16 * 1024
        assert found[batch].outside <= max(MOST, copied + 16 * 1024)
        assert seen(executor, copy=copy) <= found[batch].outside + MOST
    assert copy or found[32].outside - found[4].outside < 32 * 1024


@pytest.mark.exhaustive
def test_measuring_takes_no_memory_of_the_size_of_the_arena(cnn):
    executor = prepared(cnn(32))
    tracemalloc.start()
    try:
        with np.errstate(all="ignore"):
            assert high_water(executor) <= executor.plan.peak
        assert tracemalloc.get_traced_memory()[1] < executor.plan.peak / 8
    finally:
        tracemalloc.stop()


def test_views_of_results_have_the_bits_of_copies(cnn):
    training = cnn(2)
    inputs = gt.api.read_inputs(training.model, "random")
    copies, views = (gt.run(training, inputs, copy=copy) for copy in (True, False))

    assert copies.gradients.keys() == views.gradients.keys()
    for name, array in {**copies.gradients, **copies.outputs}.items():
        np.testing.assert_array_equal({**views.gradients, **views.outputs}[name], array)


def test_inputs_are_let_go_as_they_go_into_the_arena(cnn):
    model, arrays = gt.api.fed(cnn(2).model, "random")
    kept = dict(arrays)
    result = gt.api.step(model, arrays)

    assert arrays == {}
    assert gt.run(model, kept).loss == result.loss
    assert set(kept) == {"image", "labels"}


WATCHED = """
import ctypes, gc, sys
import numpy as np
import gradtool as gt
from gradtool import api
from gradtool.workloads.run_options import RunOptions

def status(key):
    with open("/proc/self/status") as lines:
        return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

path, batch, copy = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
training = gt.grad(gt.load(path, batch=batch), loss="ce:logits", input_grad=["image"])
arrays = api.read_inputs(training.model, "random")
result = api.step(training.model, dict(arrays), RunOptions(measure=True, copy=copy))
outside = result.measurement.outside
result = api.step(training.model, dict(arrays), RunOptions(copy=copy))  # what is made once
del result
total = gt.plan(training).total
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
result = api.step(training.model, dict(arrays), RunOptions(copy=copy))
print(status("VmHWM") - before - total, outside)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("copy", [True, False])
def test_the_high_water_mark_of_the_process_is_what_measuring_says(copy):
    """Within what the allocator rounds; the arena is larger than what malloc keeps for itself."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("no /proc/self/clear_refs: the high-water mark cannot be reset")
    path = ROOT / "samples" / "cnn.onnx"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED, path, "64", str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    beside, outside = map(int, done.stdout.split())

    assert beside <= outside + 2 * MOST
    assert beside >= outside - 4 * MOST
