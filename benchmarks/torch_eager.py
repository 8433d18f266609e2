"""PyTorch eager on an ONNX file: one torch call per node, gradients by autograd.

The other side of the benchmarks, and an oracle: it knows the operators of `torch_operators`, and
raises KeyError for any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch_operators import OPERATORS, Attributes


class Eager:
    """A forward ONNX model as a sequence of torch calls on `dtype` parameters."""

    def __init__(self, model: onnx.ModelProto, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.values = {t.name: self._tensor(t) for t in model.graph.initializer}
        self.outputs = [o.name for o in model.graph.output]
        self.nodes = [
            (OPERATORS[n.op_type], self._attributes(n), list(n.input), list(n.output))
            for n in model.graph.node
        ]

    def _tensor(self, proto: onnx.TensorProto) -> torch.Tensor:
        made = torch.from_numpy(np.array(numpy_helper.to_array(proto)))
        return made.to(self.dtype) if made.is_floating_point() else made

    def _attributes(self, node: onnx.NodeProto) -> Attributes:
        found: Attributes = {}
        for a in node.attribute:
            value = onnx.helper.get_attribute_value(a)
            if isinstance(value, onnx.TensorProto):
                value = self._tensor(value)
            found[a.name] = value.decode() if isinstance(value, bytes) else value
        return found

    def __call__(self, feeds: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Every value by name."""
        known = self.values | feeds
        for function, attributes, inputs, outputs in self.nodes:
            made = function(attributes, *(known[i] if i else None for i in inputs))
            known |= zip(outputs, made if isinstance(made, tuple) else (made,), strict=False)
        return known

    def tensors(self, feeds: dict[str, np.ndarray[Any, Any]]) -> dict[str, torch.Tensor]:
        """Arrays as tensors, floats in the model's type."""
        return {
            n: torch.from_numpy(a).to(self.dtype) if a.dtype.kind == "f" else torch.from_numpy(a)
            for n, a in feeds.items()
        }

    def gradients(
        self, feeds: dict[str, np.ndarray[Any, Any]], loss: str, wrt: list[str]
    ) -> tuple[float, list[torch.Tensor]]:
        """The loss and its gradient by each of `wrt`, initializers or inputs."""
        tensors = self.tensors(feeds)
        leaves = self._leaves(tensors, wrt)
        value = self(tensors)[loss]
        grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        return float(value.detach().sum()), _dense(grads, leaves)

    def second_order(
        self,
        feeds: dict[str, np.ndarray[Any, Any]],
        loss: str,
        wrt: list[str],
        heads: list[np.ndarray[Any, Any]],
    ) -> list[torch.Tensor]:
        """The gradient of `Σ ⟨head, gradient of the loss⟩` by each of `wrt`: `H·heads`."""
        tensors = self.tensors(feeds)
        leaves = self._leaves(tensors, wrt)
        first = torch.autograd.grad(self(tensors)[loss].sum(), leaves, create_graph=True)
        total = sum(
            (g * torch.from_numpy(h).to(self.dtype)).sum()
            for g, h in zip(first, heads, strict=True)
        )
        return _dense(torch.autograd.grad(total, leaves, allow_unused=True), leaves)

    def _leaves(self, tensors: dict[str, torch.Tensor], wrt: list[str]) -> list[torch.Tensor]:
        leaves = [tensors[n] if n in tensors else self.values[n] for n in wrt]
        for leaf in leaves:
            leaf.requires_grad_(True)
        return leaves


def _dense(grads: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients with zeros where the result does not depend on a leaf."""
    return [torch.zeros_like(v) if g is None else g for g, v in zip(grads, leaves, strict=True)]
