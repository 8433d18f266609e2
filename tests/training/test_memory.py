"""A training holds what is planned, and nothing grows from step to step."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest
from trainings import drawn, examples, proto

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
BATCH, STEPS = 8, 400


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("case", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2))])
def test_many_steps_hold_what_is_planned(case, tmp_path):
    """`python benchmarks/training.py memory` holds the samples to it."""
    from training import held

    kind, options = drawn(3, seed=7)[case]
    made = proto(kind)
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = BATCH // options["micro_batches"]
    onnx.save(made, tmp_path / "net.onnx")
    options |= {"steps": STEPS, "lr": 1e-6, "patience": None, "checkpoint_every": STEPS // 4}

    most, planned = held(tmp_path / "net.onnx", examples(50), **options)

    assert most < planned * 1.01 + (256 << 10)
