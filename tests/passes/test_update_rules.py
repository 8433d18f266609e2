"""Every optimizer with its options against torch.optim, or the paper: 100 steps in float64."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import sampled
from updates import apart, gradients, in_stock, model, ours, shapes

import gradtool as gt
from gradtool.passes.update_kinds import OPTIMIZERS

BOUND = 1e-8

CASES = [
    ("sgd", {}),
    ("sgd", {"weight_decay": 0.1}),
    ("sgd", {"momentum": 0.8}),
    ("sgd", {"momentum": 0.8, "dampening": 0.3}),
    ("sgd", {"momentum": 0.8, "dampening": 0.3, "weight_decay": 0.1}),
    ("sgd", {"momentum": 0.8, "nesterov": True}),
    ("sgd", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("momentum", {}),
    ("momentum", {"dampening": 0.5}),
    ("adam", {}),
    ("adam", {"weight_decay": 0.1, "beta1": 0.5, "beta2": 0.9, "epsilon": 1e-5}),
    ("adam", {"beta1": 0.0}),
    ("adamw", {}),
    ("adamw", {"weight_decay": 0.2, "lr": 0.02}),
    ("adagrad", {}),
    ("adagrad", {"weight_decay": 0.1}),
    ("rmsprop", {}),
    ("rmsprop", {"centered": True}),
    ("rmsprop", {"momentum": 0.7}),
    ("rmsprop", {"centered": True, "momentum": 0.7, "weight_decay": 0.1, "alpha": 0.8}),
    ("adafactor", {}),
    ("adafactor", {"weight_decay": 0.1, "clip_threshold": 2.0, "beta2_decay": -0.5}),
    ("muon", {}),
    ("muon", {"nesterov": False, "ns_steps": 3, "weight_decay": 0.01}),
    ("muon", {"adjust": "match_rms_adamw", "momentum": 0.8}),
    ("lamb", {}),
    ("lamb", {"weight_decay": 0.0, "beta1": 0.8}),
    ("lion", {}),
    ("lion", {"weight_decay": 0.3, "lr": 1e-3, "beta1": 0.8}),
]
TORCH_NAMES = {
    "beta2_decay": "beta2_decay", "clip_threshold": "d", "epsilon": "eps", "adjust": "adjust_lr_fn",
}  # fmt: skip


def torch_options(options, defaults):
    """The arguments of torch.optim."""
    found = {
        TORCH_NAMES.get(k, k): int(v) if k == "ns_steps" else v
        for k, v in options.items() if not k.startswith("beta") or k == "beta2_decay"
    }  # fmt: skip
    if {"beta1", "beta2"} & set(options):
        found["betas"] = (
            options.get("beta1", defaults.get("beta1")), options.get("beta2", defaults.get("beta2"))
        )  # fmt: skip
    return found


def in_torch(optimizer, options, sizes, steps, monkeypatch, seed):
    torch = pytest.importorskip("torch")
    # Torch orthogonalises in bfloat16; here the precision is that of the parameter.
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)
    start = model(sizes, "float64", seed).graph.initializers
    leaves = {
        name: torch.nn.Parameter(torch.tensor(value.const_value.numpy()))
        for name, value in start.items()
    }
    kinds = {
        "sgd": torch.optim.SGD, "momentum": torch.optim.SGD, "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW, "adagrad": torch.optim.Adagrad,
        "rmsprop": torch.optim.RMSprop, "adafactor": torch.optim.Adafactor,
        "muon": torch.optim.Muon,
    }  # fmt: skip
    given = torch_options(options, OPTIMIZERS[optimizer].settings.numbers)
    if optimizer == "momentum":
        given.setdefault("momentum", 0.9)
    chosen = list(leaves.values())
    if optimizer == "muon":
        rest = {"lr": given.get("lr", 1e-3), "weight_decay": given.get("weight_decay", 0.1)}
        chosen = [p for p in leaves.values() if p.ndim == 2]
        others = torch.optim.AdamW([p for p in leaves.values() if p.ndim != 2], **rest)
    stepper = kinds[optimizer](chosen, **given)
    for batch in steps:
        for i, p in enumerate(leaves.values()):
            p.grad = torch.tensor(batch[f"g{i}"])
        stepper.step()
        if optimizer == "muon":
            others.step()
    return {name: p.detach().numpy() for name, p in leaves.items()}


def lamb(x, g, state, t, lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=1e-2, epsilon=1e-6):
    """Algorithm 2 of arXiv:1904.00962 with φ(z) = z, one layer."""
    m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
    v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g**2
    r = m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    u = r + weight_decay * x
    lengths = np.sqrt(np.sum(x**2)), np.sqrt(np.sum(u**2))
    return x - lr * (lengths[0] / lengths[1] if all(lengths) else 1.0) * u


def lion(x, g, state, _, lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0):
    """Algorithm 2 of arXiv:2302.06675."""
    m = state.get("m", 0)
    c = beta1 * m + (1 - beta1) * g
    state["m"] = beta2 * m + (1 - beta2) * g
    return x - lr * (np.sign(c) + weight_decay * x)


def of_the_paper(update, options, sizes, steps, seed):
    start = model(sizes, "float64", seed).graph.initializers
    values = {name: value.const_value.numpy() for name, value in start.items()}
    state = {name: {} for name in values}
    for t, batch in enumerate(steps, 1):
        for i, name in enumerate(values):
            values[name] = update(values[name], batch[f"g{i}"], state[name], t, **options)
    return values


@pytest.mark.extra
@pytest.mark.parametrize("seed", sampled([0, 1]))
@pytest.mark.parametrize(("optimizer", "options"), CASES, ids=str)
def test_a_hundred_steps_are_those_of_the_reference(optimizer, options, seed, monkeypatch):
    sizes = shapes(seed)
    training = gt.grad(
        model(sizes, "float64", seed), loss="y", wrt=["p*"], optimizer=optimizer,
        optimizer_option=options,
    )  # fmt: skip
    papers = {"lamb": lamb, "lion": lion}

    def steps():
        return gradients(sizes, seed, "float64")

    if optimizer in papers:
        expected = of_the_paper(papers[optimizer], options, sizes, steps(), seed)
    else:
        expected = in_torch(optimizer, options, sizes, steps(), monkeypatch, seed)
    found = ours(training, steps())

    assert apart(found, expected) < BOUND
    assert apart(in_stock(training, steps()), found) < BOUND


def test_every_optimizer_is_among_the_cases():
    assert {name for name, _ in CASES} == set(OPTIMIZERS)


def test_every_option_is_given_somewhere():
    """Coefficients of Muon's polynomial and most epsilons aside."""
    for optimizer in OPTIMIZERS.values():
        alike = {n for n, other in OPTIMIZERS.items() if other.rule is optimizer.rule}
        given = {option for case, options in CASES if case in alike for option in options}
        left = set(optimizer.settings.names) - given - set(optimizer.settings.numbers)
        assert not {n for n in left if not re.fullmatch("ns_[abc]|.*epsilon.*", n)}
