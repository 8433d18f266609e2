"""PyTorch models by their heads, exported: bodies x shapes of the output x activations x exporters.

Each says which loss PyTorch would be trained by, which parameters it has, and how it was exported.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROWS, WIDTH, PLACES, CLASSES = 3, 6, 4, 5
EXPORTERS = ("dynamo", "raw", "script")
ACTIVATIONS = ("none", "Sigmoid", "Softmax", "LogSoftmax")
# Shapes of outputs: how a head makes one of [N, T, D], and the axis of the classes.
SHAPES: dict[str, int | None] = {
    "N": None, "N1": None, "NC": 1, "N1HW": None, "NCHW": 1, "NHWC": 3, "NTC": 2, "NCT": 1,
}  # fmt: skip
BODIES = ("plain", "scale", "attention", "slope", "norm", "group", "gain")


class Body(nn.Module):
    """`[N, T, D]` to the same, by a layer that exporters write with numbers of their own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Linear(WIDTH, WIDTH)
        if kind == "scale":
            self.register_buffer("epsilon", torch.tensor([1e-3]), persistent=False)
            self.temperature = torch.tensor([1.7])
        if kind == "attention":
            self.project = nn.Linear(WIDTH, 3 * WIDTH)
        if kind == "slope":
            self.slope = nn.PReLU()
        if kind == "norm":
            self.norm = nn.LayerNorm(WIDTH)
        if kind == "group":
            self.norm = nn.GroupNorm(2, PLACES)
        if kind == "gain":
            self.gain = nn.Conv1d(1, 1, 1)

    def forward(self, x: Any) -> Any:
        """What a network of this kind gives before its loss."""
        h = torch.tanh(self.inner(x))
        if self.kind == "scale":
            return h / self.temperature + self.epsilon
        if self.kind == "attention":
            parts = self.project(h).view(*h.shape[:2], 3, 2, WIDTH // 2)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v)
            return mixed.transpose(1, 2).reshape(*h.shape)
        if self.kind == "slope":
            return self.slope(h)
        if self.kind == "gain":
            return self.gain(h.reshape(-1, 1, WIDTH)).reshape(h.shape)
        return self.norm(h) if self.kind in ("norm", "group") else h


class Head(nn.Module):
    """A body, a layer that gives scores of some shape, and an activation."""

    def __init__(self, body: str, shape: str, activation: str) -> None:
        super().__init__()
        self.body, self.shape, self.activation = Body(body), shape, activation
        count = 1 if "1" in shape or shape == "N" else CLASSES
        if "W" in shape:
            self.last: nn.Module = nn.Conv2d(PLACES, count, 1)
        elif shape == "NCT":
            self.last = nn.Conv1d(WIDTH, count, 1)
        else:
            self.last = nn.Linear(WIDTH, count)

    def scores(self, x: Any) -> Any:
        h = self.body(x)
        if "W" in self.shape:
            y = self.last(h.reshape(ROWS, PLACES, 2, WIDTH // 2))
            return y.permute(0, 2, 3, 1) if self.shape == "NHWC" else y
        if self.shape == "NCT":
            return self.last(h.transpose(1, 2))
        y = self.last(h if self.shape == "NTC" else h.mean(1))
        return y.squeeze(-1) if self.shape == "N" else y

    def forward(self, x: Any) -> Any:
        y, axis = self.scores(x), SHAPES[self.shape]
        if self.activation == "Sigmoid":
            return torch.sigmoid(y)
        if self.activation == "Softmax":
            return torch.softmax(y, axis or 0)
        return torch.log_softmax(y, axis or 0) if self.activation == "LogSoftmax" else y


@dataclass(frozen=True)
class Case:
    """A model and how it is exported; `kind` is the loss that PyTorch would be trained by."""

    body: str
    shape: str
    activation: str
    exporter: str

    @property
    def name(self) -> str:
        """As in `attention-NTC-Softmax-raw`."""
        return f"{self.body}-{self.shape}-{self.activation}-{self.exporter}"

    @property
    def kind(self) -> str:
        """The loss that is right: classes have cross-entropy, one number has the squared error."""
        if self.activation == "Sigmoid":
            return "bce"
        if SHAPES[self.shape] is None:
            return "mse"
        return "nll" if self.activation == "LogSoftmax" else "ce"

    def made(self) -> Head:
        """The model, with numbers that no exporter can take for equal."""
        torch.manual_seed(sum(map(ord, self.body + self.shape + self.activation)))
        model = Head(self.body, self.shape, self.activation).eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.5)
        return model

    def labels(self, model: Head, x: Any) -> Any:
        """Labels as PyTorch's loss takes them; classes are no axis of the labels."""
        y, axis = model.scores(x), SHAPES[self.shape]
        if self.kind in ("ce", "nll"):
            sizes = [size for i, size in enumerate(y.shape) if i != axis]
            return torch.randint(0, CLASSES, sizes)
        return (torch.rand(y.shape) > 0.5).float() if self.kind == "bce" else torch.randn(y.shape)

    def loss(self, model: Head, x: Any, labels: Any) -> Any:
        """The loss by PyTorch, its classes moved to where PyTorch takes them."""
        axis = SHAPES[self.shape]
        if self.kind == "mse":
            return functional.mse_loss(model(x), labels)
        if self.kind == "bce":
            return functional.binary_cross_entropy(model(x), labels)
        assert axis is not None  # noqa: S101 - losses of classes have classes
        if self.kind == "nll":
            return functional.nll_loss(model(x).movedim(axis, 1).contiguous(), labels)
        return functional.cross_entropy(model.scores(x).movedim(axis, 1).contiguous(), labels)

    def exported(self, model: Head, x: Any) -> bytes:
        """The file that PyTorch's exporter writes."""
        how: dict[str, Any] = {
            "dynamo": {"dynamo": True, "external_data": False, "verbose": False},
            "raw": {"dynamo": True, "external_data": False, "verbose": False, "optimize": False},
            "script": {"dynamo": False},
        }[self.exporter]
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
            path = Path(folder) / "model.onnx"
            torch.onnx.export(model, (x,), path, **how)
            return path.read_bytes()


def cases(keep: Callable[[Case], bool] = lambda _: True) -> Iterator[Case]:
    """Every case; one number in each place has no Softmax."""
    for exporter, body, shape, activation in itertools.product(
        EXPORTERS, BODIES, SHAPES, ACTIVATIONS
    ):
        case = Case(body, shape, activation, exporter)
        if SHAPES[shape] is None and "Softmax" in activation:
            continue
        if keep(case):
            yield case
