"""Adapters beside products of integers, whose first operand is rounded to 8 bits on the way."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import gradtool as gt

RANK = 2


class Net:
    """Two layers `DynamicQuantizeLinear, MatMulInteger, Cast, Mul`, of drawn forms and numbers.

    `fused`: as onnxruntime writes them when it has optimized a file.
    """

    def __init__(self, seed: int, *, fused: bool = False) -> None:
        self.rng, self.fused = np.random.default_rng(seed), fused
        self.nodes: list[onnx.NodeProto] = []
        self.held: dict[str, np.ndarray] = {}
        self.real: dict[str, np.ndarray] = {}
        self.lead = [int(n) for n in self.rng.integers(2, 4, self.rng.integers(1, 3))]
        self.sizes = [int(n) for n in self.rng.integers(3, 9, 4)]
        h = self.layer("x", "w0", self.sizes[0], self.sizes[1], bias=self.rng.random() < 0.5)
        self.emit("Tanh", h, to="h")
        self.shared = self.rng.random() < 0.5  # the rounded input of two products
        y = self.layer("h", "w1", self.sizes[1], self.sizes[2], bias=self.rng.random() < 0.5)
        if self.shared:
            other = self.layer("h", "w2", self.sizes[1], self.sizes[2], bias=False)
            y = self.emit("Mul", y, other)
        self.emit("Identity", y, to="y")

    def emit(self, op: str, *inputs: str, to: str = "", domain: str = "") -> str:
        to = to or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [to], f"{op}_{to}", domain=domain))
        return to

    def weight(self, name: str, rows: int, columns: int) -> None:
        """Codes `[rows, columns]`, signed or not, with one scale or one by column."""
        rng = self.rng
        kind = np.int8 if rng.random() < 0.5 else np.uint8
        shape = (columns,) if rng.random() < 0.5 else ()
        low = np.iinfo(kind).min
        zero = rng.integers(low + 90, low + 160, shape).astype(kind)
        codes = rng.integers(low, low + 256, (rows, columns)).astype(kind)
        scale = rng.uniform(0.004, 0.008, shape).astype(np.float32)
        self.held |= {f"{name}_zero": zero, f"{name}_scale": scale, name: codes}
        self.real[name] = (codes.astype(float) - zero) * scale

    def layer(self, x: str, name: str, rows: int, columns: int, *, bias: bool) -> str:
        self.weight(name, rows, columns)
        of = name, f"{name}_scale", f"{name}_zero"
        if self.fused:
            y = self.emit("DynamicQuantizeMatMul", x, *of, domain="com.microsoft")
        else:
            rounded = [f"{x}_codes", f"{x}_scale", f"{x}_zero"]
            if not any(rounded[0] in node.output for node in self.nodes):
                self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], rounded, f"q{x}"))
            whole = self.emit("MatMulInteger", rounded[0], name, rounded[2], of[2])
            self.nodes[-1].name = f"{name}/MatMul"
            cast = self.emit("Cast", whole)
            self.nodes[-1].attribute.append(helper.make_attribute("to", 1))
            y = self.emit("Mul", cast, self.emit("Mul", rounded[1], of[1]))
        if not bias:
            return y
        self.held[f"{name}_bias"] = self.rng.standard_normal(columns).astype(np.float32)
        return self.emit("Add", y, f"{name}_bias")

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info("x", 1, [*self.lead, self.sizes[0]])]
        outputs = [helper.make_tensor_value_info("y", 1, [*self.lead, self.sizes[2]])]
        held = [numpy_helper.from_array(array, name) for name, array in self.held.items()]
        graph = helper.make_graph(self.nodes, "net", inputs, outputs, held)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """An input, and labels."""
        shapes = ([*self.lead, size] for size in (self.sizes[0], self.sizes[2]))
        x, labels = (self.rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        return x, labels


def rounded(x):
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32(high - low) / np.float32(255)
    zero = np.clip(np.round(-low / scale), 0, 255)
    return (np.clip(np.round(x.astype(np.float32) / scale) + zero, 0, 255) - zero) * float(scale)


def loss_of(net, adapters, x, labels):
    """The mean square in float64; adapters read what is not rounded."""

    def layer(x, name):
        a, b = adapters[f"{name}.lora_A"], adapters[f"{name}.lora_B"]
        return rounded(x) @ net.real[name] + x @ a @ b + net.held.get(f"{name}_bias", 0)

    h = np.tanh(layer(x.astype(float), "w0"))
    y = layer(h, "w1") * (layer(h, "w2") if net.shared else 1)
    return float(((y - labels) ** 2).mean())


def filled(training, seed=0):
    """The adapters of a training graph, with factors that are no longer zero."""
    rng, found = np.random.default_rng(seed), {}
    for name in training.gradients:
        value = training.model.graph.initializers[name]
        array = 0.3 * rng.standard_normal(value.shape.numpy())
        value.const_value = ir.tensor(array.astype(np.float32), name=name)
        found[name] = array.astype(np.float32).astype(float)
    return found


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_adapters_read_what_is_not_rounded(seed, fused):
    net = Net(seed, fused=fused)
    x, labels = net.numbers()
    training = gt.grad(gt.load(net.model()), loss="mse:y", lora=RANK)
    adapters = filled(training)
    found = gt.run(training, {"x": x, "labels": labels})

    assert set(adapters) == {f"{n}.lora_{c}" for n in net.real for c in "AB"}
    assert found.loss == pytest.approx(loss_of(net, adapters, x, labels), rel=0.02)
    # What is last is behind no rounding: differences are exact.
    for name in [n for n in adapters if n[:2] != "w0"]:
        way = np.random.default_rng(1).standard_normal(adapters[name].shape)
        ends = [loss_of(net, adapters | {name: adapters[name] + e * way}, x, labels)
                for e in (1e-4, -1e-4)]  # fmt: skip
        slope = (ends[0] - ends[1]) / 2e-4
        assert (found.gradients[name] * way).sum() == pytest.approx(slope, rel=0.02, abs=1e-3)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_trained_adapters_run_in_onnxruntime(seed, fused, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    net = Net(seed, fused=fused)
    x, labels = net.numbers()
    onnx.save(net.model(), tmp_path / "net.onnx")
    training = gt.grad(gt.load(tmp_path / "net.onnx"), loss="mse:y", lora=RANK, optimizer="sgd")
    with gt.Session(training) as session:
        losses = [session.step({"x": x, "labels": labels, "lr": 0.05}).loss for _ in range(4)]
        session.save_adapter(tmp_path / "net.lora.onnx")
    adapter, options = ort.LoraAdapter(), ort.RunOptions()
    adapter.Load(str(tmp_path / "net.lora.onnx_adapter"))
    stock = ort.InferenceSession(tmp_path / "net.lora.onnx", providers=["CPUExecutionProvider"])
    before = float(((stock.run(None, {"x": x})[0] - labels) ** 2).mean())
    options.add_active_adapter(adapter)
    after = float(((stock.run(None, {"x": x}, options)[0] - labels) ** 2).mean())

    assert before == pytest.approx(losses[0], rel=0.02)
    assert after < losses[-1] < losses[0]


@pytest.mark.parametrize("target", ["w1", "w1/MatMul", "w1/*"])
def test_a_target_is_the_name_of_codes_or_of_their_product(target):
    training = gt.grad(gt.load(Net(0).model()), loss="mse:y", lora=RANK, lora_target=[target])

    assert set(training.gradients) == {"w1.lora_A", "w1.lora_B"}


def test_integers_are_frozen_and_adapters_are_offered():
    with pytest.warns(gt.errors.GradtoolWarning, match="--lora RANK"):
        gt.grad(gt.load(Net(4).model()), loss="mse:y", input_grad=["x"])
