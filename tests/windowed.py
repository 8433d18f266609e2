"""Random nodes with windows: what is drawn, the models that hold them, and what they compute.

A model computes `y = Op(x, w)` and `loss = Σ c · y`.  What it computes is written out in float64:
which elements each window meets, then sums, maxima or norms of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

Array = np.ndarray[Any, Any]
OPERATORS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "MaxUnpool")
BATCH, CHANNELS = 2, 4


@dataclass(frozen=True)
class Windowed:
    """One node over images of `sizes`; of a MaxUnpool, behind the MaxPool whose places it reads."""

    op: str
    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    given: dict[str, Any] = field(default_factory=dict)
    open_sizes: bool = False
    whole: tuple[int, ...] = ()  # `output_shape` of a MaxUnpool

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def weights(self) -> tuple[int, ...]:
        """The shape of w, empty if there is none."""
        group = self.given.get("group", 1)
        outer = {"Conv": (CHANNELS, CHANNELS // group), "ConvTranspose": (CHANNELS, 2)}
        return (*outer[self.op], *self.kernel) if self.op in outer else ()

    def axis(self, name: str, default: int) -> list[int]:
        return list(self.given.get(name, [default] * self.rank))


def draw(rng: np.random.Generator) -> Windowed:
    """A node of any kind, with attributes as files have them."""
    op, rank = str(rng.choice(OPERATORS)), int(rng.integers(1, 4))
    kernel, sizes = _ints(rng, rank, 1, 3), _ints(rng, rank, 3, 7 if rank < 3 else 5)
    if op == "MaxUnpool":
        unsaid = rng.random() < 0.3
        sizes = tuple(n // k * k for n, k in zip(sizes, kernel, strict=True)) if unsaid else sizes
        more = _ints(rng, rank, 0, 2)
        whole = (BATCH, CHANNELS, *(n + d for n, d in zip(sizes, more, strict=True)))
        given: dict[str, Any] = {"kernel_shape": kernel, "strides": kernel}
        return Windowed(op, sizes, kernel, given, False, () if unsaid else whole)
    mode = str(rng.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    given = {"auto_pad": mode}
    if rng.random() < 0.8:
        given["strides"] = _ints(rng, rank, 1, 3)
    if rng.random() < 0.4:
        given["dilations"] = _ints(rng, rank, 1, 2)
    if mode == "NOTSET" and rng.random() < 0.7:
        given["pads"] = [int(rng.integers(0, k)) for k in (*kernel, *kernel)]
    if "Conv" in op and rng.random() < 0.4:
        given["group"] = 2
    if "Pool" in op:
        given["kernel_shape"] = kernel
        given |= {"ceil_mode": 1} if rng.random() < 0.3 else {}
    if op == "AveragePool" and rng.random() < 0.5:
        given["count_include_pad"] = 1
    if op == "LpPool":
        given["p"] = int(rng.integers(1, 4))
    case = Windowed(op, sizes, kernel, given, bool(rng.random() < 0.25))
    return _with_output(rng, case) if op == "ConvTranspose" else case


def _with_output(rng: np.random.Generator, case: Windowed) -> Windowed:
    """A ConvTranspose that may say how large its output is."""
    strides, dilations = case.axis("strides", 1), case.axis("dilations", 1)
    if rng.random() < 0.35:
        most = map(max, strides, dilations)
        case.given["output_padding"] = [int(rng.integers(0, m)) for m in most]
    if rng.random() < 0.3:
        axes = zip(case.sizes, strides, case.kernel, dilations, strict=True)
        covered = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in axes]
        case.given["output_shape"] = [max(1, n + int(rng.integers(-3, 4))) for n in covered]
        case.given.pop("pads", None)
    return case


def _ints(rng: np.random.Generator, count: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high + 1, count))


def model_of(case: Windowed, *, loss: bool = True) -> onnx.ModelProto:
    """The node, and with `loss` what is differentiated."""
    names = ["x", "w"] if case.weights else ["x"]
    held = []
    if case.op == "MaxUnpool":
        nodes = [helper.make_node("MaxPool", ["x"], ["pooled", "places"], **case.given)]
        names = ["pooled", "places"]
        if case.whole:
            shape = np.array(case.whole, np.int64)
            held, names = [onnx.numpy_helper.from_array(shape, "shape")], [*names, "shape"]
        nodes.append(helper.make_node(case.op, names, ["y"], "node", **case.given))
    else:
        given = {k: v for k, v in case.given.items() if (k, v) != ("auto_pad", "NOTSET")}
        nodes = [helper.make_node(case.op, names, ["y"], "node", **given)]
    typed = helper.make_tensor_value_info
    image = [f"n{a}" if case.open_sizes else n for a, n in enumerate(case.sizes)]
    made = [f"m{a}" for a in range(case.rank + 2)]
    inputs = [typed("x", TensorProto.FLOAT, [BATCH, CHANNELS, *image])]
    inputs += [typed("w", TensorProto.FLOAT, case.weights)] if case.weights else []
    outputs = [typed("y", TensorProto.FLOAT, made)]
    if loss:
        nodes.append(helper.make_node("Mul", ["y", "c"], ["weighted"]))
        nodes.append(helper.make_node("ReduceSum", ["weighted"], ["loss"], keepdims=0))
        inputs.append(typed("c", TensorProto.FLOAT, made))
        outputs.append(typed("loss", TensorProto.FLOAT, []))
    graph = helper.make_graph(nodes, "windowed", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=9)


# --------------------------------------------------------------------------- written out


def paddings(case: Windowed) -> tuple[list[int], list[int], list[int]]:
    """What is padded before and behind each axis, and how many windows, or elements, there are."""
    strides, dilations = case.axis("strides", 1), case.axis("dilations", 1)
    extent = [(k - 1) * d + 1 for k, d in zip(case.kernel, dilations, strict=True)]
    mode, rank = case.given["auto_pad"], case.rank
    pads = list(case.given.get("pads", [0] * 2 * rank))
    begin, end = pads[:rank], pads[rank:]
    if case.op == "ConvTranspose":
        extra = case.axis("output_padding", 0)
        axes = zip(case.sizes, strides, extent, extra, strict=True)
        covered = [(n - 1) * s + e + p for n, s, e, p in axes]
        shape = case.given.get("output_shape")
        if shape or mode.startswith("SAME"):
            whole = shape or [n * s for n, s in zip(case.sizes, strides, strict=True)]
            total = [max(0, c - n) for c, n in zip(covered, whole, strict=True)]
            begin = [t // 2 if mode == "SAME_UPPER" else t - t // 2 for t in total]
            end = [t - b for t, b in zip(total, begin, strict=True)]
        axes = zip(covered, begin, end, strict=True)
        return begin, end, list(shape or (c - b - e for c, b, e in axes))
    if mode.startswith("SAME"):
        reach = extent if case.op == "Conv" else case.kernel
        axes = zip(case.sizes, strides, reach, strict=True)
        total = [(-(-n // s) - 1) * s + e - n for n, s, e in axes]
        total = [max(0, t) for t in total] if case.op == "Conv" else total
        begin = [int(t / 2) if mode == "SAME_UPPER" else int((t + 1) / 2) for t in total]
        end = [t - b for t, b in zip(total, begin, strict=True)]
    counts = []
    for size, stride, reach, b, e in zip(case.sizes, strides, extent, begin, end, strict=True):
        room = size + b + e - reach
        count = (-(-room // stride) if case.given.get("ceil_mode") else room // stride) + 1
        late = case.given.get("ceil_mode") and (count - 1) * stride >= size + b
        counts.append(count - bool(late))
    return begin, end, counts


def meetings(case: Windowed) -> Iterator[tuple[tuple[int, ...], int, list[tuple[Any, Any]]]]:
    """By window: its place, how many taps count with padding, and `(tap, element)` inside of x.

    Of a ConvTranspose the windows are over its output, one for each element of x.
    """
    begin, end, counts = paddings(case)
    strides, dilations = case.axis("strides", 1), case.axis("dilations", 1)
    turned = case.op == "ConvTranspose"
    over, windows = (counts, case.sizes) if turned else (case.sizes, counts)
    for place in itertools.product(*map(range, windows)):
        met, counted = [], 0
        for tap in itertools.product(*map(range, case.kernel)):
            axes = zip(place, strides, tap, dilations, begin, strict=True)
            at = tuple(o * s + t * d - b for o, s, t, d, b in axes)
            if all(i < n + e for i, n, e in zip(at, over, end, strict=True)):
                counted += 1
            cut = [min(0, e) if case.op == "AveragePool" else 0 for e in end]
            if all(0 <= i < n + e for i, n, e in zip(at, over, cut, strict=True)):
                met.append((tap, at))
        yield place, counted, met


def written_out(case: Windowed, x: Array, w: Array | None, c: Array) -> tuple[Array, Array, Any]:
    """`(y, dx, dw)` in float64; c has more elements than y, of which the first ones count."""
    _, _, counts = paddings(case)
    group = case.given.get("group", 1)
    dx = np.zeros(x.shape)
    y = np.zeros((BATCH, 2 * group if case.op == "ConvTranspose" else CHANNELS, *counts))
    c = c[tuple(slice(n) for n in y.shape)]
    if w is None:
        for place, counted, met in meetings(case):
            _pool(case, x, c, (y, dx), (..., *place), counted, met)
        return y, dx, None
    parts = w.reshape(group, -1, *w.shape[1:])
    dw = np.zeros(parts.shape)
    source, kernel, target = ("bgi", "gij" if case.op == "ConvTranspose" else "gji", "bgj")
    for place, _, met in meetings(case):
        for tap, at in met:
            i, o = ((..., *p) for p in ((place, at) if case.op == "ConvTranspose" else (at, place)))
            piece = parts[(..., *tap)]
            a, g = (part.reshape(BATCH, group, -1) for part in (x[i], c[o]))
            y[o] += np.einsum(f"{source},{kernel}->{target}", a, piece).reshape(BATCH, -1)
            dx[i] += np.einsum(f"{target},{kernel}->{source}", g, piece).reshape(BATCH, -1)
            dw[(..., *tap)] += np.einsum(f"{source},{target}->{kernel}", a, g)
    return y, dx, dw.reshape(w.shape)


def _pool(
    case: Windowed, x: Array, c: Array, into: tuple[Array, Array], place: Any, counted: int,
    met: list[tuple[Any, Any]],
) -> None:  # fmt: skip
    """One window: its value, and its gradient to what it meets."""
    y, dx = into
    values = np.stack([x[(..., *at)] for _, at in met]) if met else np.zeros((0, BATCH, CHANNELS))
    if case.op == "MaxPool":
        y[place] = values.max(0, initial=-np.inf)
        shares = (values == y[place]) * 1.0
    elif case.op == "AveragePool":
        share = 1 / (counted if case.given.get("count_include_pad") else max(1, len(met)))
        y[place], shares = values.sum(0) * share, np.full(values.shape, share)
    else:
        p = case.given["p"]
        y[place] = (np.abs(values) ** p).sum(0) ** (1 / p)
        shares = np.sign(values) * np.abs(values) ** (p - 1) * y[place] ** (1 - p)
    for (_, at), share in zip(met, shares, strict=True):
        dx[(..., *at)] += share * c[place]
