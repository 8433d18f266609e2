"""Kits as a program of another kind uses them: by their manifest, with numpy and onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - numpy knows narrow floats by it
import numpy as np
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

from gradtool.graph import optimizers

Arrays = dict[str, np.ndarray[Any, Any]]

NETS = {
    "mlp": (
        """(float[batch, I] x) => (float[batch, O] y) {
            a = Gemm <transB = 1> (x, w1, b1)
            h = Tanh (a)
            n = LayerNormalization (h, scale, shift)
            y = MatMul (n, w2)
        }""",
        {"w1": "HI", "b1": "H", "scale": "H", "shift": "H", "w2": "HO"},
    ),
    "cnn": (
        """(float[batch, 2, 6, 6] x) => (float[batch, O] y) {
            c = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1)
            n = BatchNormalization (c, scale, shift, mean, var)
            r = Softplus (n)
            p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
            g = GlobalAveragePool (p)
            f = Flatten (g)
            y = Gemm (f, w2, b2)
        }""",
        {"w1": "H233", "scale": "H", "shift": "H", "mean": "H", "var": "H", "w2": "HO", "b2": "O"},
    ),
    "lstm": (
        """(float[5, batch, I] x) => (float[batch, O] y) {
            all, last, cell = LSTM <hidden_size = HIDDEN> (x, w1, r1, b1)
            z = Constant <value_ints = [0]> ()
            f = Squeeze (last, z)
            y = MatMul (f, w2)
        }""",
        {"w1": "1KI", "r1": "1KH", "b1": "1L", "w2": "HO"},
    ),
    "dropout": (
        """(float[batch, I] x) => (float[batch, O] y) {
            half = Constant <value_float = 0.5> ()
            third = Constant <value_float = 0.3> ()
            a = MatMul (x, w1)
            h = Tanh (a)
            d = Dropout (h, half)
            e = Dropout (d, third)
            y = MatMul (e, w2)
        }""",
        {"w1": "IH", "w2": "HO"},
    ),
    "names": (  # of which one is the next of another
        """(float[batch, I] x) => (float[batch, O] y) {
            m = MatMul (x, "a/w")
            lr = Tanh (m)
            y = MatMul (lr, "a/w_next")
        }""",
        {"a/w": "IH", "a/w_next": "HO"},
    ),
}  # fmt: skip
OPTIMIZERS = tuple(name for name in optimizers.OPTIMIZERS if name != "none")
PLANS = ("keep", "mirror", "sqrt", "optimal")


@st.composite
def nets(draw) -> tuple[bytes, Arrays, int]:
    """A model with weights, a batch for it, and what seeds both."""
    name = draw(st.sampled_from(sorted(NETS)))
    sizes = {letter: draw(st.integers(1 + (letter == "O"), 5)) for letter in "IHOB"}
    seed = draw(st.integers(0, 2**16))
    return net(name, sizes, seed), batch_of(name, sizes, seed), seed


def net(name: str, sizes: Mapping[str, int], seed: int = 0) -> bytes:
    """A net whose letters have sizes: I input, H hidden, O output."""
    text, weights = NETS[name]
    hidden = sizes["H"]
    known = {**sizes, "K": 4 * hidden, "L": 8 * hidden}
    text = text.replace("HIDDEN", str(hidden))
    for letter in "IO":
        text = text.replace(f", {letter}]", f", {sizes[letter]}]")
    for number, quoted in enumerate(n for n in weights if "/" in n):
        text = text.replace(f'"{quoted}"', f"quoted{number}")
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> net {text}')
    for number, quoted in enumerate(n for n in weights if "/" in n):
        for node in model.graph.node:
            for slot, given in enumerate(node.input):
                node.input[slot] = quoted if given == f"quoted{number}" else given
    rng = np.random.default_rng(seed)
    for weight, letters in weights.items():
        shape = [known[each] if each.isalpha() else int(each) for each in letters]
        drawn = rng.standard_normal(shape).astype(np.float32)
        drawn = 1 + drawn**2 if weight == "var" else drawn
        model.graph.initializer.append(numpy_helper.from_array(drawn, weight))
    helper.set_model_props(model, {"author": "tests"})
    return model.SerializeToString()


def batch_of(name: str, sizes: Mapping[str, int], seed: int = 0) -> Arrays:
    """A batch of B for a net: `x`, and `labels` of O classes."""
    rng = np.random.default_rng(seed + 1)
    count = sizes["B"] + 1  # statistics of one are none
    shape = {"cnn": (count, 2, 6, 6), "lstm": (5, count, sizes["I"])}.get(name, (count, sizes["I"]))
    return {
        "x": rng.standard_normal(shape).astype(np.float32),
        "labels": rng.integers(0, sizes["O"], count),
    }


class Stock:
    """A kit in stock onnxruntime with default options; the state is fed back."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime as ort

        self.manifest = json.loads((folder / "manifest.json").read_text())
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._step, self._eval = (
            ort.InferenceSession(str(folder / self.manifest[key]["file"]), options)
            for key in ("step", "eval")
        )
        self.state = {
            each["name"]: np.fromfile(folder / each["file"], np.dtype(each["type"])).reshape(
                each["shape"]
            )
            for each in self.manifest["state"]["tensors"]
        }

    def step(self, batch: Mapping[str, Any]) -> Arrays:
        """The outputs of one step, after which the state is the next one."""
        inputs = self.manifest["step"]["inputs"]
        defaults = {i["name"]: np.array(i["default"], i["type"]) for i in inputs if "default" in i}
        taken = {name: self.state[name] for name in self.manifest["step"]["state"]}
        names = [o["name"] for o in self.manifest["step"]["outputs"]]
        values = self._step.run(names, {**defaults, **batch, **taken})
        found = dict(zip(names, values, strict=True))
        tensors = self.manifest["state"]["tensors"]
        self.state = {each["name"]: found[each["next"]] for each in tensors}
        return found

    def evaluate(self, batch: Mapping[str, Any]) -> Arrays:
        """The outputs of the forward model on the state."""
        taken = {name: self.state[name] for name in self.manifest["eval"]["state"]}
        names = [o["name"] for o in self.manifest["eval"]["outputs"]]
        return dict(zip(names, self._eval.run(names, {**batch, **taken}), strict=True))
