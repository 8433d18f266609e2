"""Random networks on native kernels: numpy's results, and the same bits under every plan."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import sampled, swept
from image_networks import Network, image_network
from native_calls import needs_library, threads

import gradtool as gt
from gradtool.exec.run import execute
from gradtool.program.flatten import flatten
from gradtool.workloads.plans import workload
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.strategies import STRATEGIES

NETWORKS = 40


def step(model, arrays, kernels="native"):
    return execute(model, dict(arrays), RunOptions(kernels=kernels, check_arena=True)).gradients


def training(seed):
    """The training graph of a random network, and arrays for its inputs."""
    graph = gt.grad(gt.load(image_network(seed)), train_mode=bool(seed % 2))
    return graph, gt.api.fed(graph.model, "random", seed)[1]


@needs_library
@pytest.mark.parametrize("seed", sampled(range(NETWORKS)))
def test_gradients_are_those_of_numpy(seed):
    graph, arrays = training(seed)
    theirs = step(graph.model, arrays, "numpy")
    largest = max(np.abs(array).max(initial=0) for array in theirs.values())
    for name, found in step(graph.model, arrays).items():
        # Of a bias before a normalisation the gradient is 0: what is there was rounded.
        scale = np.abs(theirs[name]).max(initial=0.01 * largest)
        np.testing.assert_allclose(found / scale, theirs[name] / scale, atol=2e-3, err_msg=name)


@pytest.mark.sample(2)
@needs_library
@pytest.mark.parametrize("seed", swept(NETWORKS, 8))
def test_bits_depend_on_no_plan_and_on_no_threads(seed, tmp_path):
    graph, arrays = training(seed)
    expected = step(graph.model, arrays)
    for strategy in ("reorder", "mirror", "sqrt", "optimal"):
        path = tmp_path / f"{strategy}.onnx"
        gt.save(gt.recompute(graph, strategy), path)
        with threads(2):
            found = step(gt.load(path), arrays)
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), (strategy, name)


def test_images_lie_channels_last_between_convolutions():
    graph, _ = training(3)
    values = flatten(graph.model, kernels="native").values

    assert any(v.channels_last for v in values)
    assert not any(v.channels_last for v in flatten(graph.model).values)


@needs_library
@pytest.mark.parametrize("seed", range(10))
def test_a_step_updates_parameters_as_numpy_does(seed):
    graph = gt.grad(gt.load(image_network(seed)), train_mode=True, optimizer="momentum")
    arrays = gt.api.fed(graph.model, "random", seed)[1]
    ours, theirs = (
        execute(graph.model, dict(arrays), RunOptions(kernels=kernels, check_arena=True)).outputs
        for kernels in ("native", "numpy")
    )
    for name, found in ours.items():
        np.testing.assert_allclose(found, theirs[name], rtol=1e-3, atol=1e-3, err_msg=name)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", [25, *swept(25, 3)])  # 25: a plan computes the last image again
def test_images_lie_alike_under_every_plan_also_where_a_view_looks_at_one(seed):
    """A view holds the instance that it looks at in rows, and so all others of that value."""
    work = workload(gt.grad(gt.load(looked_at(seed))).model, {}, "native")
    expected = {v.name: v.channels_last for v in work.program.values}
    assert any(expected.values())
    for name, strategy in STRATEGIES.items():
        for value in strategy(work).plan.program.values:
            assert value.channels_last == expected.get(value.name, value.channels_last), name


def looked_at(seed):
    """Convolutions, normalised and rectified, and a product of the rows of the last image."""
    random = np.random.default_rng(seed)
    made = Network(random, int(random.integers(1, 5)), int(random.integers(1, 5)), 16)
    for _ in range(int(random.integers(2, 5))):
        made.conv(int(random.choice([4, 8, 16])), 3, int(random.integers(1, 3)))
        made.norm()
        made.add(str(random.choice(["Relu", "Sigmoid", "HardSwish"])))
    return made.model(is_looked_at=True)
