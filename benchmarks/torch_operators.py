"""The operators of ONNX as calls of PyTorch: those of the samples, of common exports and of tests.

Each takes the attributes of a node and its inputs as tensors; absent inputs are None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import onnx
import torch
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


def _axis(a: Attributes, x: torch.Tensor, default: int) -> int:
    axis = a.get("axis", default)
    return int(axis + x.dim() if axis < 0 else axis)


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


def _conv_transpose(a: Attributes, x: Any, w: Any, b: Any = None) -> Any:
    n = x.dim() - 2
    pads, ones = list(a.get("pads", [0] * 2 * n)), [1] * n
    call = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[
        n - 1
    ]
    slack, strides = a.get("output_padding", [0] * n), a.get("strides", ones)
    y = call(x, w, b, strides, 0, slack, a.get("group", 1), a.get("dilations", ones))
    for axis in range(n):
        y = y.narrow(axis + 2, pads[axis], y.shape[axis + 2] - pads[axis] - pads[n + axis])
    return y


def _average_pool(a: Attributes, x: Any) -> Any:
    n = x.dim() - 2
    counted = bool(a.get("count_include_pad", 0))
    pads = list(a.get("pads", [0] * 2 * n))
    if pads[:n] != pads[n:]:
        raise KeyError("AveragePool with unequal pads")
    call = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[n - 1]
    ceil = bool(a.get("ceil_mode", 0))
    return call(x, a["kernel_shape"], a.get("strides", [1] * n), pads[:n], ceil, counted)


def _axes(x: torch.Tensor, axes: Any) -> list[int]:
    chosen = [] if axes is None else [int(d) for d in axes]
    return chosen or list(range(x.dim()))


def _reduce_by(formula: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: Attributes, x: Any, axes: Any = None) -> Any:
        return formula(x, _axes(x, axes), bool(a.get("keepdims", 1)))

    return run


def _product(x: Any, axes: list[int], keep: bool) -> Any:  # noqa: FBT001 - as torch
    for axis in sorted((d % x.dim() for d in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


def _clip(_: Attributes, x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _pad(a: Attributes, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    chosen = range(x.dim()) if axes is None else [int(v) % x.dim() for v in axes]
    widths = [0] * 2 * x.dim()
    for i, axis in enumerate(chosen):
        at = 2 * (x.dim() - 1 - axis)
        widths[at : at + 2] = [int(pads[i]), int(pads[len(chosen) + i])]
    if a.get("mode", "constant") != "constant":
        raise KeyError("Pad other than with a constant")
    return functional.pad(x, widths, value=0.0 if value is None else float(value))


def _cum_sum(a: Attributes, x: Any, axis: Any) -> Any:
    axis = int(axis)
    x = x.flip(axis) if a.get("reverse", 0) else x
    y = x.cumsum(axis)
    y = y - x if a.get("exclusive", 0) else y
    return y.flip(axis) if a.get("reverse", 0) else y


def _rms_norm(a: Attributes, x: Any, scale: Any) -> Any:
    axes = list(range(a.get("axis", -1) % x.dim(), x.dim()))
    return x * torch.rsqrt((x * x).mean(axes, keepdim=True) + a.get("epsilon", 1e-5)) * scale


def _hard_sigmoid(a: Attributes, x: Any) -> Any:
    return torch.clamp(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1)


def _selu(a: Attributes, x: Any) -> Any:
    alpha, gamma = (
        a.get("alpha", 1.67326319217681884765625),
        a.get("gamma", 1.05070102214813232421875),
    )
    return gamma * functional.elu(x, alpha)


def _fold(call: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, *xs: reduce(call, xs)


def _cast(a: Attributes, x: Any) -> Any:
    return x.to(_TYPES[a["to"]])


_TYPES = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.BOOL: torch.bool,
}


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: a + b,
    "Sub": lambda _, a, b: a - b,
    "Mul": lambda _, a, b: a * b,
    "Div": lambda _, a, b: a / b,
    "Pow": lambda _, a, b: a**b,
    "MatMul": lambda _, a, b: a @ b,
    "Sum": lambda _, *xs: sum(xs[1:], xs[0]),
    "Mean": lambda _, *xs: sum(xs[1:], xs[0]) / len(xs),
    "Max": _fold(torch.maximum),
    "Min": _fold(torch.minimum),
    "Neg": lambda _, x: -x,
    "Abs": lambda _, x: torch.abs(x),
    "Sign": lambda _, x: torch.sign(x),
    "Exp": lambda _, x: torch.exp(x),
    "Log": lambda _, x: torch.log(x),
    "Sqrt": lambda _, x: torch.sqrt(x),
    "Reciprocal": lambda _, x: 1 / x,
    "Sin": lambda _, x: torch.sin(x),
    "Cos": lambda _, x: torch.cos(x),
    "Atan": lambda _, x: torch.atan(x),
    "Erf": lambda _, x: torch.erf(x),
    "Sigmoid": lambda _, x: torch.sigmoid(x),
    "Softplus": lambda _, x: torch.logaddexp(x, torch.zeros_like(x)),
    "Softsign": lambda _, x: functional.softsign(x),
    "LeakyRelu": lambda a, x: functional.leaky_relu(x, a.get("alpha", 0.01)),
    "Elu": lambda a, x: functional.elu(x, a.get("alpha", 1.0)),
    "Celu": lambda a, x: functional.celu(x, a.get("alpha", 1.0)),
    "Selu": _selu,
    "Mish": lambda _, x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
    "HardSwish": lambda _, x: functional.hardswish(x),
    "HardSigmoid": _hard_sigmoid,
    "PRelu": lambda _, x, slope: torch.where(x > 0, x, slope * x),
    "Clip": _clip,
    "Identity": lambda _, x: x.clone(),
    "Cast": _cast,
    "Equal": lambda _, a, b: a == b,
    "Greater": lambda _, a, b: a > b,
    "GreaterOrEqual": lambda _, a, b: a >= b,
    "Less": lambda _, a, b: a < b,
    "LessOrEqual": lambda _, a, b: a <= b,
    "Not": lambda _, x: ~x,
    "And": lambda _, a, b: a & b,
    "Where": lambda _, c, a, b: torch.where(c, a, b),
    "Relu": lambda _, x: functional.relu(x),
    "Tanh": lambda _, x: torch.tanh(x),
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Gelu": lambda a, x: functional.gelu(x, approximate=a.get("approximate", "none")),
    "LogSoftmax": lambda a, x: torch.log_softmax(x, a.get("axis", -1)),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _average_pool,
    "MaxPool": _max_pool,
    "GlobalAveragePool": lambda _, x: x.mean(tuple(range(2, x.dim())), keepdim=True),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": lambda a, x, s, b=None: functional.layer_norm(
        x, x.shape[a.get("axis", -1) % x.dim() :], s, b, a.get("epsilon", 1e-5)
    ),
    "GroupNormalization": lambda a, x, s, b: functional.group_norm(
        x, a["num_groups"], s, b, a.get("epsilon", 1e-5)
    ),
    "InstanceNormalization": lambda a, x, s, b: functional.instance_norm(
        x, weight=s, bias=b, eps=a.get("epsilon", 1e-5)
    ),
    "RMSNormalization": _rms_norm,
    "Gemm": _gemm,
    "Einsum": lambda a, *xs: torch.einsum(a["equation"], *xs),
    "Gather": lambda a, x, i: functional.embedding(i, x) if a.get("axis", 0) == 0 and x.dim() == 2
    else torch.index_select(x, a.get("axis", 0), i.reshape(-1)).reshape(
        [*x.shape[: a.get("axis", 0)], *i.shape, *x.shape[a.get("axis", 0) + 1 :]]),
    "GatherND": lambda _, x, i: x[tuple(i.reshape(-1, i.shape[-1]).t())].reshape(
        [*i.shape[:-1], *x.shape[i.shape[-1] :]]),
    "Reshape": _reshape,
    "Flatten": lambda a, x: x.reshape(math.prod(x.shape[: _axis(a, x, 1)]), -1),
    "Transpose": lambda a, x: x.permute(
        a.get("perm", list(reversed(range(x.dim()))))
    ),
    "Squeeze": lambda _, x, axes=None: x.squeeze()
    if axes is None
    else x.squeeze(tuple(int(v) for v in axes)),
    "Unsqueeze": _unsqueeze,
    "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"),
    "ReduceMax": _reduce("amax"),
    "ReduceMin": _reduce("amin"),
    "ReduceLogSumExp": _reduce("logsumexp"),
    "ReduceProd": _reduce_by(_product),
    "ReduceL1": _reduce_by(lambda x, axes, keep: x.abs().sum(axes, keepdim=keep)),
    "ReduceL2": _reduce_by(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep).sqrt()),
    "ReduceSumSquare": _reduce_by(lambda x, axes, keep: (x * x).sum(axes, keepdim=keep)),
    "ReduceLogSum": _reduce_by(lambda x, axes, keep: x.sum(axes, keepdim=keep).log()),
    "CumSum": _cum_sum,
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Expand": lambda _, x, shape: x * x.new_ones([int(v) for v in shape]),
    "Tile": lambda _, x, repeats: x.repeat([int(v) for v in repeats]),
    "Pad": _pad,
    "GatherElements": lambda a, x, i: torch.gather(x, a.get("axis", 0), i),
    "Split": _split,
    "Slice": _slice,
    "Constant": _constant,
    "ConstantOfShape": lambda a, s: a["value"].reshape(()).expand([int(v) for v in s]),
    "Trilu": _trilu,
    "Attention": _attention,
    "LSTM": _lstm,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
}  # fmt: skip
