"""What a check compares where values are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.errors import GradtoolError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena
from gradtool.exec.run import parameters_of, planned

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
