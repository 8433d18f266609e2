"""Clipping and groups inside of the step, against torch; and that everything is in its place."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import sampled
from updates import apart, gradients, in_stock, model, ours, shapes

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.graph.defaults import take_defaults, write_defaults
from gradtool.passes.update_kinds import OPTIMIZERS

BOUND = 1e-8
GROUPS = {"no_decay": ["p1", "p[34]"], "lr_scale": {"p*": 0.5, "p2": 0.1, "p3": 0.0}}
SCALES = {"p2": 0.1, "p3": 0.0}  # of the others 0.5
FREE = ("p1", "p3", "p4")


def grouped_in_torch(sizes, steps, seed, kind, limits):
    """Torch's optimizer of one group per parameter, its clipping before each step."""
    import torch

    start = model(sizes, "float64", seed).graph.initializers
    leaves = {
        name: torch.nn.Parameter(torch.tensor(value.const_value.numpy()))
        for name, value in start.items()
    }
    groups = [
        {"params": [p], "lr": 0.02 * SCALES.get(n, 0.5), "weight_decay": 0.0 if n in FREE else 0.1}
        for n, p in leaves.items()
    ]
    stepper = kind(groups)
    for batch in steps:
        for i, p in enumerate(leaves.values()):
            p.grad = torch.tensor(batch[f"g{i}"])
        if "clip_value" in limits:
            torch.nn.utils.clip_grad_value_(leaves.values(), limits["clip_value"])
        if "clip_norm" in limits:
            torch.nn.utils.clip_grad_norm_(leaves.values(), limits["clip_norm"])
        stepper.step()
    return {n: p.detach().numpy() for n, p in leaves.items()}


@pytest.mark.sample(1, 2)
@pytest.mark.extra
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("limits", [{}, {"clip_value": 0.05}, {"clip_norm": 0.3},
                                    {"clip_value": 0.05, "clip_norm": 0.3}], ids=str)  # fmt: skip
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adagrad"])
def test_groups_and_limits_are_those_of_torch(optimizer, limits, seed):
    torch = pytest.importorskip("torch")
    kinds = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad}
    sizes = shapes(seed)
    training = gt.grad(
        model(sizes, "float64", seed), loss="y", wrt=["p*"], optimizer=optimizer,
        optimizer_option={"lr": 0.02, "weight_decay": 0.1}, **limits, **GROUPS,
    )  # fmt: skip

    def steps():
        return gradients(sizes, seed, "float64")

    found = ours(training, steps())
    expected = grouped_in_torch(sizes, steps(), seed, kinds[optimizer], limits)

    assert apart(found, expected) < BOUND
    assert apart(in_stock(training, steps()), found) < BOUND


def test_a_limit_is_an_input():
    """As are all numbers: what is fed counts, not what the graph was made with."""
    sizes = shapes(3)
    made = {"loss": "y", "wrt": ["p*"], "optimizer": "adam"}
    fixed = gt.grad(
        model(sizes, "float64"), **made, clip_norm=0.25, optimizer_option={"beta1": 0.5}
    )
    fed = gt.grad(model(sizes, "float64"), **made, clip_norm=9.0)
    numbers = {"clip_norm": 0.25, "beta1": 0.5}

    found = ours(fed, gradients(sizes, 3, "float64"), **numbers)
    assert apart(found, ours(fixed, gradients(sizes, 3, "float64"))) < 1e-12


@pytest.mark.sample(3)
@pytest.mark.parametrize("limits", sampled([{"clip_norm": 0.3}, {}, {"clip_value": 0.1}]), ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_next_values_lie_over_the_old_and_blocks_are_all_there_is(optimizer, limits):
    """The most that a step holds beside what stays: gradients, a block each, a matrix for Muon."""
    sizes = [(300, 500), (400, 300), (70_000,)]
    training = gt.grad(model(sizes, "float32"), loss="y", wrt=["p*"], optimizer=optimizer, **limits)
    plan = gt.plan(training, kernels="numpy")
    program = plan.program
    replaced = {new: old for old, new in program.state.items()}
    over = {v: datum.alias for v, datum in enumerate(program.values) if datum.alias is not None}
    updates = [s for s in program.steps if s.op.endswith(("Update", "Direction"))]

    assert over == replaced
    assert max(sum(w.bytes for w in s.workspace) for s in updates) <= 6 * 4 * 32768
    result = gt.run(training, measure=True, kernels="numpy")
    assert plan.peak - 64 < result.measurement.high_water <= plan.peak


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_half_precision_is_computed_in_single(optimizer):
    """One step from the same numbers, by masters: nothing is rounded."""
    sizes = [(3, 4), (5,), (2, 3, 4)]
    options = {"lr": 0.25} | ({"epsilon1": 1e-2} if optimizer == "adafactor" else {})
    made = {"loss": "y", "wrt": ["p*"], "optimizer": optimizer, "optimizer_option": options}
    half, whole = model(sizes, "float16"), model(sizes, "float32")
    for name, value in whole.graph.initializers.items():
        narrow = half.graph.initializers[name].const_value.numpy()
        value.const_value = type(value.const_value)(narrow.astype(np.float32), name=name)
    batch = next(gradients(sizes, 1, "float16"))
    wide = {name: array.astype(np.float32) for name, array in batch.items()}
    found = ours(gt.grad(half, **made), iter([batch]))
    expected = ours(gt.grad(whole, **made), iter([wide]))

    for name in ("p0", "p1", "p2"):
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], expected[name], rtol=0.02, atol=2e-2)


def test_a_file_has_the_defaults_and_what_is_changed_in_it_counts():
    training = gt.grad(model(shapes(0), "float32"), loss="y", wrt=["p*"], optimizer="adamw")
    before = training.model.metadata_props["gradtool.defaults"]
    model_ = training.model.clone()
    write_defaults(model_)
    assert {"lr", "beta1", "beta2", "weight_decay"} <= set(model_.graph.initializers)
    take_defaults(model_)
    assert model_.metadata_props["gradtool.defaults"] == before
    write_defaults(model_)
    value = model_.graph.initializers["beta1"]
    value.const_value = type(value.const_value)(np.float32(0.5).reshape(()), name="beta1")
    take_defaults(model_)
    assert '"beta1": 0.5' in model_.metadata_props["gradtool.defaults"]
    assert "beta1" not in model_.graph.initializers


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"clip_norm": 1.0}, "clip_norm needs optimizer"),
        ({"clip_value": 1.0}, "clip_value needs optimizer"),
        ({"no_decay": ["p*"]}, "no_decay needs optimizer"),
        ({"lr_scale": {"p*": 2.0}}, "lr_scale needs optimizer"),
        ({"optimizer_option": ["nesterov"]}, "optimizer_option needs optimizer"),
        ({"optimizer": "sgd", "clip_norm": 0.0}, "clip_norm is 0.0, and has to be above 0"),
        ({"optimizer": "sgd", "clip_value": np.nan}, "clip_value is nan, and has to be above 0"),
        ({"optimizer": "sgd", "no_decay": ["p*"]}, "sgd has no weight decay here"),
        ({"optimizer": "adamw", "no_decay": ["q*"]}, r"--no-decay q\*: no such parameter"),
        ({"optimizer": "adamw", "lr_scale": ["q=1"]}, "--lr-scale q: no such parameter"),
        ({"optimizer": "sgd", "lr_scale": ["p0"]}, "write GLOB=FACTOR"),
        ({"optimizer": "sgd", "lr_scale": {"p0": -1.0}}, "write GLOB=FACTOR"),
        ({"optimizer": "sgd", "lr_scale": {"p0": np.inf}}, "write GLOB=FACTOR"),
        ({"optimizer": "sgd", "optimizer_option": ["momentun=0.9"]}, "did you mean 'momentum'"),
        ({"optimizer": "sgd", "optimizer_option": ["momentum"]}, "momentum is a number"),
        ({"optimizer": "sgd", "optimizer_option": ["nesterov"]}, "of a momentum: give one"),
        ({"optimizer": "sgd", "optimizer_option": {"dampening": 0.5}}, "of a momentum: give one"),
        (
            {"optimizer": "momentum", "optimizer_option": {"dampening": 0.5, "nesterov": True}},
            "nesterov has no dampening",
        ),
        ({"optimizer": "adam", "optimizer_option": {"beta1": 1.0}}, "from 0 to below 1"),
        ({"optimizer": "adam", "optimizer_option": {"beta2": np.nan}}, "from 0 to below 1"),
        ({"optimizer": "rmsprop", "optimizer_option": ["centered=maybe"]}, "true or false"),
        ({"optimizer": "muon", "optimizer_option": ["adjust=best"]}, "one of original, match"),
    ],
)
def test_what_changes_nothing_or_cannot_be_is_refused(options, reason):
    with pytest.raises(UsageError, match=reason):
        gt.grad(model(shapes(0), "float32"), loss="y", wrt=["p*"], **options)


def test_texts_and_mappings_say_the_same():
    made = {"loss": "y", "wrt": ["p*"], "optimizer": "rmsprop"}
    texts = gt.grad(
        model(shapes(0), "float32"), **made, lr_scale=["p0=0.5"],
        optimizer_option=["momentum=0.5", "centered", "epsilon=1e-4"],
    )  # fmt: skip
    mappings = gt.grad(
        model(shapes(0), "float32"), **made, lr_scale={"p0": 0.5},
        optimizer_option={"momentum": 0.5, "centered": True, "epsilon": 1e-4},
    )  # fmt: skip

    assert [str(n) for n in texts.model.graph] == [str(n) for n in mappings.model.graph]
    assert texts.model.metadata_props == mappings.model.metadata_props
