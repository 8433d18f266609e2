"""Models at random whose sizes are expressions of the sizes of their inputs."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import onnx
from conftest import build

IMAGE = {
    "conv": ("Conv <pads = [1, 1, 1, 1], strides = [2, 2]> ({0}, k{1})", "k", (3, 3, 3, 3)),
    "wide": ("Conv <pads = [2, 1, 0, 1]> ({0}, k{1})", "k", (3, 3, 2, 3)),
    "pool": ("MaxPool <kernel_shape = [2, 2], strides = [2, 2]> ({0})", "", ()),
    "ceil": ("AveragePool <kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1> ({0})", "", ()),
    "up": ("ConvTranspose <strides = [2, 2]> ({0}, k{1})", "k", (3, 3, 2, 2)),
    "twice": ("Concat <axis = 2> ({0}, {0})", "", ()),
    "batches": ("Concat <axis = 0> ({0}, {0})", "", ()),
    "tanh": ("Tanh ({0})", "", ()),
}
ROWS = {
    "linear": ("MatMul ({0}, k{1})", "k", (4, 4)),
    "twice": ("Concat <axis = 0> ({0}, {0})", "", ()),
    "joined": ("Concat <axis = 0> ({0}, z)", "", ()),
    "wider": ("Concat <axis = 1> ({0}, {0}, {0})", "", ()),
    "shorter": ("Slice ({0}, one, most, one_axis)", "", ()),
    "longer": ("Pad ({0}, pads)", "", ()),
    "tanh": ("Tanh ({0})", "", ()),
}
CONSTANTS = {
    "one": np.array([1]),
    "most": np.array([2**63 - 1]),
    "one_axis": np.array([1]),
    "pads": np.array([0, 1, 0, 0, 2, 0]),
    "flat": np.array([-1, 4]),
}


@dataclass(frozen=True)
class Case:
    """A model, and the arrays of a batch by the sizes of its symbols."""

    name: str
    model: onnx.ModelProto
    inputs: dict[str, tuple[str | int, ...]]

    def batch(self, seed: int) -> dict[str, np.ndarray]:
        """Random inputs of random sizes, large enough for every layer."""
        rng = np.random.default_rng(seed)
        low, high = (34, 40) if len(self.inputs["x"]) == 4 else (2, 6)
        names = dict.fromkeys(s for shape in self.inputs.values() for s in shape)
        sizes = {
            s: int(rng.integers(1, 4) if s in ("N", "M") else rng.integers(low, high))
            for s in names if isinstance(s, str)
        }  # fmt: skip
        return {
            name: rng.standard_normal([sizes.get(s, s) for s in shape]).astype(np.float32)
            for name, shape in self.inputs.items()
        }


def case(seed: int) -> Case:
    """Two to four layers that change sizes, of images or of rows, perhaps flattened at the end."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    image = rng.random() < 0.5
    layers = IMAGE if image else ROWS
    inputs = {"x": ("N", 3, "H", "W") if image else ("N", "T", 4)}
    lines, weights, last, chosen = [], {}, "x", []
    for number in range(rng.randint(2, 4)):
        name = rng.choice(list(layers))
        text, prefix, shape = layers[name]
        if prefix:
            draw = np.random.default_rng(seed + number).standard_normal(shape)
            weights[f"{prefix}{number}"] = (draw / 4).astype(np.float32)
        if "z" in text:
            if any(n in chosen for n in ("shorter", "longer", "wider")):
                continue
            inputs["z"] = ("M", "T", 4)
        weights |= {n: a for n, a in CONSTANTS.items() if f", {n}" in text}
        lines.append(f"h{number} = {text.format(last, number)}")
        last = f"h{number}"
        chosen.append(name)
    weights["w"] = np.linspace(-1, 1, 3 if image else 12).astype(np.float32)
    weights["w"] = weights["w"].reshape((1, 3, 1, 1) if image else (4, 3))
    lines.append(f"y = {'Mul' if image else 'MatMul'} ({last}, w)")
    shown = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in inputs.items())
    axes = "a, 3, b, c" if image else "a, b, 3"
    text = f"g ({shown}) => (float[{axes}] y) {{ {' '.join(lines)} }}"
    return Case(f"{seed}:{'-'.join(chosen)}", build(text, **weights), inputs)
