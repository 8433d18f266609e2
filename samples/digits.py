r"""Handwritten digits: writes `digits.onnx` and the data of scikit-learn to train and test it on.

    python samples/digits.py --out DIR
    gradtool train DIR/digits.onnx --data DIR/digits.train.npz --eval DIR/digits.test.npz \
        --metric accuracy --epochs 15 --lr 2e-3 --schedule cosine

needs scikit-learn, which ships 1 797 images of 8 × 8; every fifth is kept for the test.
"""

from __future__ import annotations

import numpy as np
import onnx
from making import main, npz
from network import FLOAT, Network

CLASSES = 10
SIDE, CHANNELS = 8, (16, 32)
PIXELS, FEATURES = CHANNELS[1] * (SIDE // 2) ** 2, 32
EVERY = 5  # the share of the test


def model() -> onnx.ModelProto:
    """Two convolutions, 32 features and a head: `image` float[batch, 1, 8, 8] → `logits`."""
    net = Network("digits", seed=11)
    x = net.input("image", FLOAT, ["batch", 1, SIDE, SIDE])
    net.output("logits", ["batch", CLASSES])
    for number, (narrow, wide) in enumerate(((1, CHANNELS[0]), CHANNELS), 1):
        name = f"base.conv{number}"
        weight = net.weight(f"{name}.weight", (wide, narrow, 3, 3), fan_in=9 * narrow)
        bias = net.zeros(f"{name}.bias", (wide,))
        x = net.op("Conv", name, x, weight, bias, kernel_shape=[3, 3], pads=[1] * 4)
        x = net.op("Relu", f"base.relu{number}", x)
    x = net.op("MaxPool", "base.pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("Flatten", "base.flatten", x, axis=1)
    weight = net.weight("base.dense.weight", (FEATURES, PIXELS), fan_in=PIXELS)
    x = net.op("Gemm", "base.dense", x, weight, net.zeros("base.dense.bias", (FEATURES,)), transB=1)
    x = net.op("Relu", "base.relu", x)
    weight = net.weight("head.weight", (CLASSES, FEATURES), fan_in=FEATURES)
    net.node("Gemm", "head", [x, weight, net.zeros("head.bias", (CLASSES,))], ["logits"], transB=1)
    return net.model()


def images() -> tuple[np.ndarray, np.ndarray]:
    """All images, from 0 to 1, and what they show."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return (found.images[:, None] / 16).astype(np.float32), found.target.astype(np.int64)


def split(images: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """Examples to train on, and to test."""
    tested = np.arange(len(labels)) % EVERY == 0
    return {
        name: {"image": images[chosen], "labels": labels[chosen]}
        for name, chosen in (("train", ~tested), ("test", tested))
    }


def files() -> dict[str, bytes]:
    """What is written, by name."""
    parts = {f"digits.{name}.npz": npz(part) for name, part in split(*images()).items()}
    return {"digits.onnx": model().SerializeToString(), **parts}


if __name__ == "__main__":
    main(__doc__, files)
