"""The values that a model's `training_info` gives its initializers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gradtool import io, shapes
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.io import read, training_algorithm
from gradtool.io.definitions import expand_definitions
from gradtool.ops import kernels
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten
from gradtool.shapes.inference import register_shapes


def initial_values(source: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Initializers as a model's `training_info` computes them before the first step.

    Raises:
        ModelError: the file is missing, damaged or not a valid model.
    """
    made = training_algorithm.initial_model(read.from_file(read.existing_path(source)))
    if made is None:
        return {}
    register_shapes()
    model = io.from_proto(made)
    expand_definitions(model, lambda *operator: kernels.find(*operator) is not None)
    shapes.infer(model)
    executor = Executor(no_recompute(flatten(model)), open_device("cpu"), parameters_of(model))
    executor.step()
    found = [executor.result(index) for index in executor.program.outputs]
    return dict(zip((v.name for v in made.graph.output), found, strict=True))
