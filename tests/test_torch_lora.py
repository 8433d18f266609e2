"""Adapters against PyTorch: the same start, the same steps of AdamW, the same weights."""

import numpy as np
import pytest
from kits import batch_of, net

import gradtool as gt

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.extra

SIZES = {"I": 6, "H": 8, "O": 4, "B": 12}
RANK, ALPHA, RATE, STEPS = 3, 12.0, 1e-2, 50


def test_an_mlp_trains_as_peft_s_formula_does():
    training = gt.grad(
        gt.load(net("mlp", SIZES)), loss="ce", optimizer="adamw", lora=RANK, lora_alpha=ALPHA
    )
    batch = batch_of("mlp", SIZES)
    held = {
        name: torch.tensor(value.const_value.numpy().copy())
        for name, value in training.model.graph.initializers.items() if value.const_value
    }  # fmt: skip
    leaves = {name: held[name].requires_grad_(True) for name in training.updates}

    def forward(x):
        scale = ALPHA / RANK
        base = torch.nn.functional.linear(x, held["w1"], held["b1"])
        h = torch.tanh(base + scale * x @ leaves["w1.lora_A"].T @ leaves["w1.lora_B"].T)
        n = torch.nn.functional.layer_norm(h, h.shape[1:], held["scale"], held["shift"])
        return n @ held["w2"] + scale * n @ leaves["w2.lora_A"] @ leaves["w2.lora_B"]

    stepper = torch.optim.AdamW(leaves.values(), lr=RATE)
    x, labels = torch.tensor(batch["x"]), torch.tensor(batch["labels"])
    with gt.Session(training) as session:
        for _ in range(STEPS):
            ours = session.step(batch | {"lr": RATE}).loss
            stepper.zero_grad()
            loss = torch.nn.functional.cross_entropy(forward(x), labels)
            loss.backward()
            stepper.step()
            np.testing.assert_allclose(ours, loss.item(), rtol=1e-4)
        for name, leaf in leaves.items():
            theirs = leaf.detach().numpy()
            np.testing.assert_allclose(session.values(name)[name], theirs, rtol=1e-3, atol=1e-4)
