"""Small models that onnxruntime quantises, and what they compute with gradients straight through.

The reference runs a quantised file node by node in float64 with PyTorch: an integer is its number
with a gradient, and rounding passes the gradient on where it does not saturate.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from quantised_lstm import BATCH, SIZE, lstm, recurrent

Array = np.ndarray[Any, Any]
LEAST, MOST = {3: -128, 2: 0}, {3: 127, 2: 255}  # by the element type of ONNX: int8, uint8
KINDS = ("dynamic", "QDQ", "QOperator")


@dataclass(frozen=True)
class Quantised:
    """How a float model is quantised; `x` is an input of it, `outputs` are the sizes of y."""

    kind: str
    net: str
    per_channel: bool
    reduce_range: bool
    activation: str
    weight: str


def draw(rng: np.random.Generator) -> Quantised:
    """One of the ways that onnxruntime has to quantise one of the models."""
    activation, weight = rng.choice([["QUInt8", "QInt8"], ["QInt8", "QInt8"], ["QUInt8", "QUInt8"]])
    flags = [bool(rng.random() < 0.5) for _ in range(2)]
    return Quantised(
        str(rng.choice(KINDS)), str(rng.choice(list(NETS))), *flags, activation, weight
    )


def _vision(rng: np.random.Generator) -> tuple[list[Any], dict[str, Array]]:
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]), make("Relu", ["c1"], ["r1"]),
        make("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        make("Conv", ["p1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=2),
        make("Add", ["c2", "p1"], ["a"]), make("LeakyRelu", ["a"], ["l"], alpha=0.1),
        make("Sigmoid", ["l"], ["s"]), make("Mul", ["s", "l"], ["m"]),
        make("Concat", ["m", "p1"], ["cc"], axis=1),
        make("AveragePool", ["cc"], ["ap"], kernel_shape=[2, 2]),
        make("GlobalAveragePool", ["ap"], ["g"]), make("Flatten", ["g"], ["f"]),
        make("Gemm", ["f", "w3", "b3"], ["h"], transB=1),
        make("LayerNormalization", ["h", "gain", "shift"], ["n"], axis=-1),
        make("MatMul", ["n", "w4"], ["y"]),
    ]  # fmt: skip
    shapes = {"w1": (4, 3, 3, 3), "b1": (4,), "w2": (4, 2, 3, 3), "w3": (6, 8), "b3": (6,),
              "gain": (6,), "shift": (6,), "w4": (6, 5)}  # fmt: skip
    return nodes, {k: rng.normal(size=s).astype(np.float32) * 0.5 for k, s in shapes.items()}


def _attention(rng: np.random.Generator) -> tuple[list[Any], dict[str, Array]]:
    make = helper.make_node
    nodes = [
        make("MatMul", ["x", "wq"], ["q"]), make("MatMul", ["x", "wk"], ["k"]),
        make("MatMul", ["x", "wv"], ["v"]), make("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        make("MatMul", ["q", "t"], ["scores"]), make("Softmax", ["scores"], ["p"], axis=-1),
        make("MatMul", ["p", "v"], ["o"]), make("Add", ["o", "bias"], ["ob"]),
        make("LayerNormalization", ["ob", "gain", "shift"], ["n"], axis=-1),
        make("MatMul", ["n", "w1"], ["u"]), make("Relu", ["u"], ["r"]),
        make("MatMul", ["r", "w2"], ["y"]),
    ]  # fmt: skip
    shapes = {"wq": (8, 6), "wk": (8, 6), "wv": (8, 6), "bias": (6,), "gain": (6,), "shift": (6,),
              "w1": (6, 12), "w2": (12, 5)}  # fmt: skip
    return nodes, {k: rng.normal(size=s).astype(np.float32) * 0.5 for k, s in shapes.items()}


NETS = {"vision": (_vision, (3, 8, 8)), "attention": (_attention, (4, 8)),
        "recurrent": (recurrent, (BATCH, SIZE))}  # fmt: skip


def quantise(case: Quantised, rng: np.random.Generator, folder: Path) -> tuple[Path, Array]:
    """The quantised file, and an input for it."""
    import onnxruntime.quantization as ort

    make, shape = NETS[case.net]
    nodes, weights = make(rng)
    typed = helper.make_tensor_value_info
    y = ["n", 5] if case.net == "vision" else ["n", 4, 5]
    held = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    graph = helper.make_graph(
        nodes, case.net, [typed("x", 1, ["n", *shape])], [typed("y", 1, y)], held
    )
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "float.onnx")
    batches = [rng.normal(size=(3, *shape)).astype(np.float32) for _ in range(3)]

    class Reader(ort.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = iter([{"x": batch} for batch in batches])

        def get_next(self) -> Any:
            return next(self.left, None)

    given = {"per_channel": case.per_channel, "reduce_range": case.reduce_range,
             "weight_type": getattr(ort.QuantType, case.weight)}  # fmt: skip
    logging.disable(logging.WARNING)
    try:
        if case.kind == "dynamic":
            ort.quantize_dynamic(folder / "float.onnx", folder / "q.onnx", **given)
        else:
            ort.quantize_static(
                folder / "float.onnx", folder / "q.onnx", Reader(), **given,
                quant_format=getattr(ort.QuantFormat, case.kind),
                activation_type=getattr(ort.QuantType, case.activation),
            )  # fmt: skip
    finally:
        logging.disable(logging.NOTSET)
    return folder / "q.onnx", batches[0]


class Reference:
    """A quantised file, node by node in float64."""

    def __init__(self, path: Path) -> None:
        import torch

        self.torch, self.model = torch, onnx.load(path)
        self.kinds = {t.name: t.data_type for t in self.model.graph.initializer}
        self.held = {
            t.name: torch.tensor(
                numpy_helper.to_array(t).astype(np.float64 if t.data_type == 1 else np.int64)
            )
            for t in self.model.graph.initializer
        }
        for name, value in self.held.items():
            if self.kinds[name] != 7:
                self.held[name] = value.double()

    def __call__(self, x: Array, wrt: list[str]) -> tuple[Any, dict[str, Array]]:
        """`(Σ (y - 0.3)² / n, gradients)`."""
        values = {**self.held, "": None, "x": self.torch.tensor(x).double()}
        leaves = {name: values[name].clone().requires_grad_() for name in wrt}
        values.update(leaves)
        for node in self.model.graph.node:
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            inputs = [values[n] for n in node.input]
            made = getattr(self, node.op_type)(node, given, *inputs)
            made = made if isinstance(made, tuple) else (made,)
            values.update(zip(node.output, made, strict=False))
        loss = ((values["y"] - 0.3) ** 2).mean()
        loss.backward()
        found = {
            k: np.zeros(v.shape) if v.grad is None else v.grad.numpy() for k, v in leaves.items()
        }
        return loss.item(), found

    def _by(self, v: Any, rank: int, axis: int) -> Any:
        if v is None or v.ndim == 0 or v.numel() == 1:
            return v if v is None else v.reshape(())
        return v.reshape([-1 if a == axis % rank else 1 for a in range(rank)])

    def _round(self, x: Any, scale: Any, zero: Any, kind: int) -> Any:
        v = x / scale
        number = self.torch.round((x.float() / scale.float()).double().detach()) + zero
        low, high = LEAST[kind], MOST[kind]
        inside = (number >= low) & (number <= high)
        through = self.torch.where(inside, v, v.detach())
        return through + (number.clamp(low, high) - v).detach()

    def _real(self, q: Any, s: Any, z: Any, axis: int = 1) -> Any:
        z = 0 if z is None else self._by(z, q.ndim, axis)
        return (q - z) * self._by(s, q.ndim, axis)

    def QuantizeLinear(self, node: Any, _: Any, x: Any, s: Any, z: Any) -> Any:
        return self._round(x, s.reshape(()), z.reshape(()), self.kinds[node.input[2]])

    def DequantizeLinear(self, _n: Any, given: Any, q: Any, s: Any, z: Any = None) -> Any:
        return self._real(q, s, z, given.get("axis", 1))

    def DynamicQuantizeLinear(self, _n: Any, _: Any, x: Any) -> Any:
        numbers, none = x.detach().float(), self.torch.tensor(0.0)
        low = self.torch.minimum(numbers.min(), none)
        high = self.torch.maximum(numbers.max(), none)
        scale = (high - low) / 255
        zero = self.torch.round((-low / scale).clamp(0, 255)).double()
        return self._round(x, scale.double(), zero, 2), scale.double(), zero

    def MatMulInteger(self, _n: Any, _: Any, a: Any, b: Any, az: Any = None, bz: Any = None) -> Any:
        az, bz = (0 if z is None else z for z in (az, bz))
        return (a - az) @ (b - bz)

    def ConvInteger(self, node: Any, given: Any, x: Any, w: Any, xz: Any, wz: Any) -> Any:
        return self.Conv(node, given, x - xz, w - self._by(wz, w.ndim, 0))

    def Conv(self, _n: Any, given: Any, x: Any, w: Any, b: Any = None) -> Any:
        pads, group = given.get("pads", [0] * 4), given.get("group", 1)
        return self.torch.nn.functional.conv2d(x, w, b, padding=pads[:2], groups=group)

    def DynamicQuantizeLSTM(self, node: Any, given: Any, x: Any, w: Any, r: Any, *rest: Any) -> Any:
        *rest, w_scale, w_zero, r_scale, r_zero = rest
        real = []
        for q, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
            s, z = (v.reshape(len(q), 1, -1) for v in (scale, zero))
            real.append(((q - z) * s).transpose(1, 2))
        x = self._real(*self.DynamicQuantizeLinear(node, given, x))
        return self.LSTM(node, given, x, *real, *rest)

    def LSTM(self, _n: Any, given: Any, x: Any, w: Any, r: Any, *rest: Any) -> Any:
        return lstm(given, x, w, r, *[*rest, *[None] * 5][:5])

    def MaxPool(self, _n: Any, given: Any, x: Any) -> Any:
        # Whole numbers in steps are often equal: the first of them counts, as in float32.
        _, places = self.torch.nn.functional.max_pool2d(
            x.detach().float(), given["kernel_shape"], given["strides"], return_indices=True
        )
        return x.flatten(2).gather(2, places.flatten(2)).view(places.shape)

    def AveragePool(self, _n: Any, given: Any, x: Any) -> Any:
        return self.torch.nn.functional.avg_pool2d(x, given["kernel_shape"], 1)

    def LayerNormalization(self, _n: Any, _: Any, x: Any, gain: Any, shift: Any) -> Any:
        return self.torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift, 1e-5)

    def Gemm(self, _n: Any, given: Any, a: Any, b: Any, c: Any = 0) -> Any:
        return a @ (b.T if given.get("transB") else b) + c

    def __getattr__(self, op: str) -> Any:
        if op.startswith("Q"):
            return self._quantised(op)
        return _PLAIN[op]

    def _quantised(self, op: str) -> Any:
        """An operator on integers: what they stand for, the operator on floats, rounded again."""
        name = {"QGemm": "Gemm"}.get(op, op.removeprefix("QLinear"))

        def run(node: Any, given: Any, *inputs: Any) -> Any:
            parts, names = list(inputs), list(node.input)
            if name == "Concat":
                parts, names = [*parts[2:], *parts[:2]], [*names[2:], *names[:2]]
            bias = parts.pop() if name == "Conv" and len(parts) == 9 else None
            names = names[: len(parts)]
            if name == "Gemm":
                bias = parts.pop(6)
                names.pop(6)
            axis = 0 if name == "Conv" or given.get("transB") else -1
            real = [self._real(*parts[i : i + 3], axis) for i in range(0, len(parts) - 2, 3)]
            if bias is not None:
                real.append(bias * (parts[1] * parts[4]))
            made = getattr(self, name)(node, given, *real)
            return self._round(
                made, parts[-2].reshape(()), parts[-1].reshape(()), self.kinds[names[-1]]
            )

        return run


_PLAIN: dict[str, Any] = {
    "Add": lambda _n, _, a, b: a + b,
    "Cast": lambda _n, _, x: x,
    "Concat": lambda _n, given, *parts: _torch().cat(parts, given["axis"]),
    "Flatten": lambda _n, _, x: x.flatten(1),
    "GlobalAveragePool": lambda _n, _, x: x.mean((2, 3), keepdim=True),
    "LeakyRelu": lambda _n, given, x: _torch().where(x > 0, x, x * given["alpha"]),
    "MatMul": lambda _n, _, a, b: a @ b,
    "Mul": lambda _n, _, a, b: a * b,
    "ReduceSum": lambda _n, _, x, axes: x.sum([int(n) for n in axes]),
    "Relu": lambda _n, _, x: x.relu(),
    "Reshape": lambda _n, _, x, shape: x.reshape(
        [int(n) or x.shape[a] for a, n in enumerate(shape)]
    ),
    "Sigmoid": lambda _n, _, x: x.sigmoid(),
    "Softmax": lambda _n, given, x: x.softmax(given.get("axis", -1)),
    "Transpose": lambda _n, given, x: x.permute(*given["perm"]),
}


def _torch() -> Any:
    import torch

    return torch


def examine(case: Quantised, folder: Path, seed: int = 0) -> list[str]:
    """What is wrong with the gradients of a file, and with what it computes."""
    import onnxruntime as ort

    import gradtool as gt

    path, x = quantise(case, np.random.default_rng(seed), folder)
    graph = gt.grad(gt.load(path), loss="mse:y", input_grad=["x"])
    gt.save(graph, folder / "gradient.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    stock = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    y = stock.run(None, {"x": x})[0]
    feeds = {"x": x, "labels": np.full_like(y, 0.3)}
    ours = gt.run(graph, feeds)
    written = gt.run(graph, feeds, engine="ort")
    loss, exact = Reference(path)(x, list(graph.gradients))
    wrong = []
    for what, found in (("onnxruntime's", float(np.mean((y - 0.3) ** 2))), ("exact", loss)):
        if abs(ours.loss - found) > STEP * abs(found):
            wrong.append(f"the loss is {ours.loss}, {what} {found}")
    for name, gradient in exact.items():
        for engine, made in (("our", ours), ("the written", written)):
            error = np.linalg.norm(made.gradients[name] - gradient)
            if error > STEP * np.linalg.norm(gradient) + 1e-6:
                wrong.append(f"{engine} gradient of {name} is off by {error}")
    if not any(np.any(g) for g in exact.values()):
        wrong.append("every gradient is 0")
    return wrong


STEP = 0.05  # what integers that round to a neighbour, in float32 and in float64, may change


def exactly(path_or_bytes, feeds, adapter=None):
    """The outputs of stock onnxruntime, which rounds activations to 8 bits if it optimises."""
    import onnxruntime as ort

    options, how = ort.SessionOptions(), ort.RunOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    if adapter is not None:
        loaded = ort.LoraAdapter()
        loaded.Load(str(adapter))
        how.add_active_adapter(loaded)
    return ort.InferenceSession(path_or_bytes, options).run(None, feeds, how)[0]
