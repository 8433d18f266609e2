"""Random graphs: our gradients in the planned arena against PyTorch, differences and onnxruntime.

`pytest tests/test_random_graphs.py` tries 30 graphs, always the same; `-m slow` tries 2000 new
ones.  A failure prints its graph and a line `@reproduce_failure(…)` that draws it again, as does
`--hypothesis-seed=N` for a whole run.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from conftest import trials
from hypothesis import HealthCheck, Phase, given, settings
from random_graphs import Recipe, assemble, recipes

import gradtool as gt
from gradtool.ops.composites.calls import inline

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
EVERYTHING = {
    "deadline": None,
    "print_blob": True,
    "database": None,
    "phases": [Phase.generate],  # a graph that fails is small enough to read
    "suppress_health_check": list(HealthCheck),
}
ci = settings(max_examples=trials(30), derandomize=True, **EVERYTHING)
nightly = settings(max_examples=trials(2000), **EVERYTHING)


def ours(recipe: Recipe, dtype=np.float64, **options):
    training = gt.grad(assemble(recipe, dtype), loss="loss", wrt=list(recipe.leaves))
    inputs = {n: a.astype(dtype) for n, a in recipe.inputs.items()}
    return gt.run(training, inputs, **options)


def scale_of(gradients) -> float:
    return float(np.sqrt(sum(np.vdot(g, g) for g in gradients.values()))) + 1e-3


def check_against_torch(recipe: Recipe) -> None:
    import torch
    from torch_eager import Eager

    eager = Eager(ir.to_proto(assemble(recipe)), torch.float64)
    wrt = list(recipe.leaves)
    loss, expected = eager.gradients(recipe.inputs, recipe.loss, wrt)
    found = ours(recipe, check_arena=True)
    assert found.loss == pytest.approx(loss, rel=1e-10, abs=1e-10)
    expected = {n: g.detach().numpy() for n, g in zip(wrt, expected, strict=True)}
    for name, gradient in expected.items():
        bound = 1e-10 * (float(np.linalg.norm(gradient)) + scale_of(expected))
        error = float(np.linalg.norm(found.gradients[name] - gradient))
        assert error <= bound, f"{name}: off by {error:.1e} of {np.linalg.norm(gradient):.1e}"


def check_against_differences(recipe: Recipe) -> None:
    """Five-point differences along one direction through all leaves; the best of three steps."""
    rng = np.random.default_rng(1)
    found = ours(recipe)
    along = {n: rng.uniform(-1, 1, a.shape) for n, a in recipe.leaves.items()}
    slope = sum(float(np.vdot(found.gradients[n], v)) for n, v in along.items())
    size = scale_of(found.gradients) * np.sqrt(sum(float(np.vdot(v, v)) for v in along.values()))
    forward = assemble(recipe)

    def loss(t: float) -> float:
        for name in recipe.weights:
            array = recipe.weights[name] + t * along[name]
            forward.graph.initializers[name].const_value = ir.Tensor(np.asarray(array), name=name)
        inputs = {n: a + t * along[n] for n, a in recipe.inputs.items()}
        return float(gt.run(forward, inputs).outputs[recipe.loss])

    errors = []
    for h in (1e-4, 1e-5, 1e-6):
        measured = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
        errors.append(abs(measured - slope) / size)
        if errors[-1] < 1e-6:
            return
    raise AssertionError(f"differences are off by {min(errors):.1e}")


def by_onnxruntime(recipe: Recipe) -> dict[str, np.ndarray]:
    """Our gradient graph, bodies in place of composites, in stock onnxruntime in this process."""
    import onnxruntime

    training = gt.grad(assemble(recipe, np.float32), loss="loss", wrt=list(recipe.leaves))
    inline(training.model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        ir.to_proto(training.model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {n: a.astype(np.float32) for n, a in recipe.inputs.items()}
    wanted = {i.name for i in session.get_inputs()}
    fed = {n: a for n, a in inputs.items() if n in wanted}
    results = session.run(list(training.gradients.values()), fed)
    return dict(zip(training.gradients, results, strict=True))


def check_against_onnxruntime(recipe: Recipe) -> None:
    """In float32 and loosely: where a graph amplifies rounding, ours and theirs differ as much."""
    exact = ours(recipe).gradients
    mine = ours(recipe, np.float32).gradients
    theirs = by_onnxruntime(recipe)
    rounding = max(float(np.linalg.norm(mine[n] - g)) for n, g in exact.items())
    for name, gradient in exact.items():
        error = float(np.linalg.norm(theirs[name] - gradient))
        assert error <= 1e-3 * scale_of(exact) + 30 * rounding, f"{name}: off by {error:.1e}"


def check(recipe: Recipe) -> None:
    """Against differences always, against the others where they are installed."""
    with np.errstate(all="ignore"):
        check_against_differences(recipe)
        if find_spec("torch"):
            check_against_torch(recipe)
        if find_spec("onnxruntime"):
            check_against_onnxruntime(recipe)


@pytest.mark.exhaustive
@pytest.mark.extra
@ci
@given(recipes())
def test_random_graphs(recipe):
    check(recipe)


@pytest.mark.slow
@nightly
@given(recipes())
def test_many_random_graphs(recipe):
    check(recipe)
