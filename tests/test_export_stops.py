"""Modules whose backward is not that of their forward, as PyTorch exports them: is it honoured?"""

from __future__ import annotations

import numpy as np
import pytest

import gradtool as gt

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.extra, pytest.mark.filterwarnings("ignore")]


def shared(v):
    scale = v.exp().detach()
    return v * scale + scale.sin()


def softmax_of_detached(v):
    return v * torch.softmax(v.detach(), -1)


# What makes of v [2, 3] something whose gradient stops somewhere.
PATTERNS = {
    "itself": lambda v: v * v.detach(),
    "straight through": lambda v: v + (torch.round(v) - v).detach(),
    "twice": lambda v: v * v.detach() + torch.tanh(v) * torch.tanh(v).detach(),
    "shared": shared,
    "scaled": lambda v: (torch.tanh(v).detach() * 2 + 1) * v,
    "again": lambda v: v * v.detach().detach(),
    "after": lambda v: v * torch.sigmoid(v.detach()),
    "reshaped": lambda v: v * v.detach().reshape(-1).sum(),
    "baseline": lambda v: v - v.mean(-1, keepdim=True).detach(),
    "in pieces": softmax_of_detached,
    "norm": lambda v: v * torch.nn.functional.layer_norm(v.detach(), [3]),
    "joined": lambda v: torch.cat([v, v.detach() * 3], -1).cos(),
    "where": lambda v: torch.where(v > 0, v, v.detach() * v),
    "product": lambda v: v.detach() @ v.T,
}


class Stopping(torch.nn.Module):
    """An output for each pattern, of parameters of its own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.ParameterList(torch.randn(2, 3) for _ in PATTERNS)
        self.line = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in PATTERNS)

    def forward(self, x):
        return [
            of(line(w * x)).sum(-1, keepdim=True) * w.detach()
            for of, w, line in zip(PATTERNS.values(), self.w, self.line, strict=True)
        ]


class Embedded(torch.nn.Module):
    """Tables with a row of padding, and one without."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Embedding(5, 3, padding_idx=0)
        self.last = torch.nn.Embedding(5, 3, padding_idx=-1)
        self.none = torch.nn.Embedding(5, 3)
        self.plain = torch.nn.Parameter(torch.randn(5, 3))

    def forward(self, x):
        parts = self.first(x), self.last(x), self.none(x)
        return sum(parts) * torch.nn.functional.embedding(x, self.plain, padding_idx=2)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x * 2.0

    @staticmethod
    def backward(_ctx, dy):
        return -dy


class Lost(torch.nn.Module):
    """What an export does not write."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([0.3, 1.7, -2.2]))

    def forward(self, x):
        v = self.w * x
        with torch.no_grad():
            scale = v.exp()
        return v * scale, Reversed.apply(v)


def exported(module, args, optimize):
    program = torch.onnx.export(module, args, dynamo=True, optimize=optimize, verbose=False)
    return program.model_proto


@pytest.mark.parametrize("optimize", [False, True])
def test_gradients_stop_where_pytorch_stops_them(optimize):
    module, x = Stopping(), torch.tensor([[1.0, 2.0, 0.5], [0.3, 1.2, -1.0]])
    proto = exported(module, (x,), optimize)
    results = module(x)

    for index, (name, result) in enumerate(zip(PATTERNS, results, strict=True)):
        wanted = [f"w.{index}", f"line.{index}.weight", f"line.{index}.bias"]
        output = proto.graph.output[index].name
        training = gt.grad(gt.load(proto), loss=f"sum:{output}", wrt=wanted)
        found = gt.run(training, {"x": x.numpy()}).gradients
        parameters = dict(module.named_parameters())
        right = torch.autograd.grad(result.sum(), [parameters[each] for each in wanted])

        assert sum("detached in PyTorch" in line for line in training.warnings) == 1
        for each, gradient in zip(wanted, right, strict=True):
            np.testing.assert_allclose(
                found[each], gradient, rtol=1e-4, atol=1e-5, err_msg=f"{name}: {each}"
            )


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_row_of_padding_gets_no_gradient(optimize, sparse):
    module, x = Embedded(), torch.tensor([[0, 1, 4, 2], [3, 3, 0, 4]])
    proto = exported(module, (x,), optimize)
    before = {name: value.detach().numpy().copy() for name, value in module.named_parameters()}
    module(x).sum().backward()

    training = gt.grad(gt.load(proto), loss="sum", optimizer="sgd", sparse=sparse)
    said = [line for line in training.warnings if line.startswith("padding")]
    found = gt.run(training, {"x": x.numpy(), "lr": np.float32(0.1)}).outputs

    rows = ["row 0 of first.weight", "row 4 of last.weight", "row 2 of plain"]
    assert said == [f"padding, which gets no gradient: {', '.join(rows)}"]
    for name, value in module.named_parameters():
        right = before[name] - 0.1 * value.grad.numpy()
        np.testing.assert_allclose(
            found[training.updates[name]], right, rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_what_is_lost_is_said_and_given_back():
    module, x = Lost(), torch.ones(3)
    proto = exported(module, (x,), optimize=True)
    output = proto.graph.output[0].name
    first, second = (gt.grad(gt.load(proto), loss=f"sum:{v.name}") for v in proto.graph.output)

    (region,) = (line for line in first.warnings if "no_grad" in line and "region" in line)
    named = region.rpartition(" ")[2]
    given = gt.grad(gt.load(proto), loss=f"sum:{output}", no_grad=[named])
    found = gt.run(given, {"x": x.numpy()}).gradients["w"]
    right = torch.autograd.grad(module(x)[0].sum(), module.w)[0]

    np.testing.assert_allclose(found, right, rtol=1e-5)
    assert any("Reversed.apply is of an autograd.Function" in line for line in second.warnings)
