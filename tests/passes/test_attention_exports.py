"""What PyTorch's exporters write of attention is found, and its gradients are those of PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradtool as gt

torch = pytest.importorskip("torch")
softmax, dot_product = torch.nn.functional.softmax, torch.nn.functional.scaled_dot_product_attention
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]

B, H, G, S, D = 2, 6, 2, 5, 4
RNG = np.random.default_rng(0)
CAUSAL = torch.ones(S, S).tril().bool()
FLAGS = torch.tensor(RNG.random((B, 1, S, S)) < 0.6) | torch.eye(S).bool()
ADDED = torch.tensor(RNG.standard_normal((B, 1, S, S)), dtype=torch.float32)


def repeated(a):
    return a[:, :, None].expand(B, G, H // G, S, D).reshape(B, H, S, D)


def bert(q, k, v):
    return (
        softmax(q @ k.transpose(-2, -1) / math.sqrt(D) + (1.0 - FLAGS.float()) * -10000.0, -1) @ v
    )


def gpt2(q, k, v):
    scores = q @ k.transpose(-1, -2) / torch.full([], D**0.5)
    lowest = torch.full([], torch.finfo(scores.dtype).min)
    return softmax(torch.where(CAUSAL, scores, lowest) + ADDED, dim=-1) @ v


def llama(q, k, v):
    k, v = repeated(k), repeated(v)
    scores = torch.matmul(q, k.transpose(2, 3)) * D**-0.5
    return softmax(scores + ADDED, dim=-1, dtype=torch.float32).to(q.dtype) @ v


def bart(q, k, v):
    q, k, v = (a.reshape(B * H, S, D) for a in (q * D**-0.5, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, S, S) + ADDED
    p = softmax(scores.view(B * H, S, S), dim=-1)
    return torch.bmm(torch.nn.functional.dropout(p, 0.1, training=False), v).view(B, H, S, D)


FORMS = {
    "bert": (bert, H), "gpt2": (gpt2, H), "llama": (llama, G), "bart": (bart, H),
    "sdpa": (dot_product, H),
    "sdpa causal": (lambda q, k, v: dot_product(q, k, v, is_causal=True), H),
    "sdpa flags": (lambda q, k, v: dot_product(q, k, v, attn_mask=FLAGS), H),
    "sdpa added": (lambda q, k, v: dot_product(q, k, v, attn_mask=ADDED, scale=0.3), H),
    "sdpa repeated": (lambda q, k, v: dot_product(q, repeated(k), repeated(v)), G),
}  # fmt: skip


class Model(torch.nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.heads = FORMS[form]
        self.q = torch.nn.Linear(H * D, H * D)
        self.kv = torch.nn.Linear(H * D, 2 * self.heads * D)

    def forward(self, x):
        q = self.q(x).view(B, S, H, D).transpose(1, 2)
        parts = self.kv(x).split(self.heads * D, 2)
        k, v = (a.view(B, S, self.heads, D).transpose(1, 2) for a in parts)
        return torch.sin(self.form(q, k, v)).sum()


@pytest.mark.sample(1, 2.5)
@pytest.mark.parametrize("how", [("dynamo", 18), ("dynamo", 23), ("script", 17)], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_an_export_is_fused_and_right(form, how, tmp_path):
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    model, x = Model(form).eval(), torch.randn(B, S, H * D)
    model(x).backward()
    path = tmp_path / "export.onnx"
    torch.onnx.export(
        model, (x,), path, dynamo=how[0] == "dynamo", opset_version=how[1], input_names=["x"]
    )
    training = gt.grad(gt.load(path))
    found = gt.run(training, {"x": x.numpy()}).gradients

    assert sum(node.op_type == "FusedAttention" for node in training.model.graph) == 1
    for name, weight in model.named_parameters():
        expected = weight.grad.numpy()
        gradient = found.get(name)
        if gradient is None:  # the exporter turned the weight
            gradient = next(g.T for g in found.values() if g.T.shape == expected.shape)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5, err_msg=name)
