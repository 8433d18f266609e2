"""PyTorch eager on an ONNX file: one torch call per node, gradients by autograd.

The other side of the benchmarks, and an oracle: it knows the operators of the samples and of common
exports, and raises KeyError for any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

Attributes = dict[str, Any]


def _pads(x: torch.Tensor, pads: list[int], value: float = 0.0) -> tuple[torch.Tensor, Any]:
    """The padding as torch's argument if it is symmetric, else applied beforehand."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return x, tuple(pads[:half])
    widths = [w for axis in reversed(range(half)) for w in (pads[axis], pads[half + axis])]
    return functional.pad(x, widths, value=value), (0,) * half


def _conv(a: Attributes, x: Any, w: Any, b: Any = None) -> Any:
    n = x.dim() - 2
    x, padding = _pads(x, list(a.get("pads", [0] * 2 * n)))
    call = (functional.conv1d, functional.conv2d, functional.conv3d)[n - 1]
    ones = [1] * n
    return call(
        x, w, b, tuple(a.get("strides", ones)), padding, tuple(a.get("dilations", ones)),
        a.get("group", 1),
    )  # fmt: skip


def _max_pool(a: Attributes, x: Any) -> Any:
    n = x.dim() - 2
    x, padding = _pads(x, list(a.get("pads", [0] * 2 * n)), float("-inf"))
    call = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[n - 1]
    kernel, strides = a["kernel_shape"], a.get("strides", [1] * n)
    return call(x, kernel, strides, padding, ceil_mode=bool(a.get("ceil_mode", 0)))


def _batch_norm(a: Attributes, x: Any, scale: Any, bias: Any, mean: Any, var: Any) -> Any:
    training = bool(a.get("training_mode", 0))
    momentum, epsilon = 1 - a.get("momentum", 0.9), a.get("epsilon", 1e-5)
    mean, var = mean.detach().clone(), var.detach().clone()
    y = functional.batch_norm(x, mean, var, scale, bias, training, momentum, epsilon)
    return (y, mean, var) if training else y


def _gemm(a: Attributes, x: Any, w: Any, c: Any = None) -> Any:
    x = x.t() if a.get("transA", 0) else x
    w = w.t() if a.get("transB", 0) else w
    if c is None:
        return a.get("alpha", 1.0) * (x @ w)
    return torch.addmm(c, x, w, beta=a.get("beta", 1.0), alpha=a.get("alpha", 1.0))


def _reshape(_: Attributes, x: Any, shape: Any) -> Any:
    sizes = [int(s) for s in shape]
    return x.reshape([x.shape[i] if s == 0 and x.numel() else s for i, s in enumerate(sizes)])


def _reduce(name: str) -> Callable[..., Any]:
    def run(a: Attributes, x: Any, axes: Any = None) -> Any:
        dims = None if axes is None or not axes.numel() else [int(d) for d in axes]
        keep = bool(a.get("keepdims", 1))
        return getattr(torch, name)(x, dim=dims or list(range(x.dim())), keepdim=keep)

    return run


def _split(a: Attributes, x: Any, sizes: Any = None) -> Any:
    axis = a.get("axis", 0)
    if sizes is not None:
        return torch.split(x, [int(s) for s in sizes], axis)
    return torch.chunk(x, a["num_outputs"], axis)


def _slice(
    _: Attributes, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None
) -> Any:
    axes = range(len(starts)) if axes is None else [int(v) for v in axes]
    steps = [1] * len(starts) if steps is None else [int(v) for v in steps]
    index: list[slice] = [slice(None)] * x.dim()
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(int(start), int(end), step)
    return x[tuple(index)]


def _attention(a: Attributes, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    causal = bool(a.get("is_causal", 0))
    scale = a.get("scale")
    return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)


def _lstm(a: Attributes, x: Any, w: Any, r: Any, b: Any = None, *_: Any) -> Any:
    """One forward direction: ONNX's gates i, o, f, c become torch's i, f, c, o."""
    hidden = a["hidden_size"]
    order = torch.cat([torch.arange(hidden) + hidden * gate for gate in (0, 2, 3, 1)])
    weights = [w[0][order], r[0][order]]
    if b is not None:
        weights += [b[0][: 4 * hidden][order], b[0][4 * hidden :][order]]
    zeros = x.new_zeros(1, x.shape[1], hidden)
    y, h, c = torch._VF.lstm(x, (zeros, zeros), weights, b is not None, 1, 0.0, True, False, False)  # noqa: SLF001
    return y.unsqueeze(1), h, c


def _constant(a: Attributes) -> Any:
    value = next(iter(a.values()))
    return value if isinstance(value, torch.Tensor) else torch.tensor(value)


def _unsqueeze(_: Attributes, x: Any, axes: Any) -> Any:
    for axis in sorted(int(v) % (x.dim() + len(axes)) for v in axes):
        x = x.unsqueeze(axis)
    return x


def _trilu(a: Attributes, x: Any, k: Any = None) -> Any:
    call = torch.triu if a.get("upper", 1) else torch.tril
    return call(x, 0 if k is None else int(k))


def _cross_entropy(a: Attributes, scores: Any, labels: Any, weight: Any = None) -> Any:
    ignored = a.get("ignore_index", -100)
    how = a.get("reduction", "mean")
    return functional.cross_entropy(scores, labels, weight, ignore_index=ignored, reduction=how)


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: a + b,
    "Mul": lambda _, a, b: a * b,
    "Pow": lambda _, a, b: a**b,
    "MatMul": lambda _, a, b: a @ b,
    "Relu": lambda _, x: functional.relu(x),
    "Tanh": lambda _, x: torch.tanh(x),
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Gelu": lambda a, x: functional.gelu(x, approximate=a.get("approximate", "none")),
    "Conv": _conv,
    "MaxPool": _max_pool,
    "GlobalAveragePool": lambda _, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": lambda a, x, s, b=None: functional.layer_norm(
        x, x.shape[a.get("axis", -1) % x.dim() :], s, b, a.get("epsilon", 1e-5)
    ),
    "Gemm": _gemm,
    "Gather": lambda a, x, i: functional.embedding(i, x) if a.get("axis", 0) == 0 and x.dim() == 2
    else torch.index_select(x, a.get("axis", 0), i.reshape(-1)).reshape(
        [*x.shape[: a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1 :]]),
    "GatherND": lambda _, x, i: x[tuple(i.reshape(-1, i.shape[-1]).t())].reshape(
        [*i.shape[:-1], *x.shape[i.shape[-1] :]]),
    "Reshape": _reshape,
    "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Squeeze": lambda _, x, axes: x.squeeze(tuple(int(v) for v in axes)),
    "Unsqueeze": _unsqueeze,
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "Split": _split,
    "Slice": _slice,
    "Constant": _constant,
    "ConstantOfShape": lambda a, s: a["value"].reshape(()).expand([int(v) for v in s]),
    "Trilu": _trilu,
    "Attention": _attention,
    "LSTM": _lstm,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}  # fmt: skip


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

    def gradients(
        self, feeds: dict[str, np.ndarray[Any, Any]], loss: str, wrt: list[str]
    ) -> tuple[float, list[torch.Tensor]]:
        """The loss and its gradient by each of `wrt`."""
        tensors = {
            n: torch.from_numpy(a).to(self.dtype) if a.dtype.kind == "f" else torch.from_numpy(a)
            for n, a in feeds.items()
        }
        for name in wrt:
            self.values[name].requires_grad_(True)
        value = self(tensors)[loss]
        grads = torch.autograd.grad(value, [self.values[n] for n in wrt])
        return float(value.detach()), list(grads)
