"""Data as people have them: tables in text, folders of images and of recordings."""

from __future__ import annotations

import csv
import json
import wave

import numpy as np
from conftest import build

NAMES = ("red", "green", "blue")
IMAGES = """net (float[batch, 3, 8, 6] x) => (float[batch, 2] y) {
    h = Conv <strides = [2, 2]> (x, w1)
    r = Relu (h)
    p = GlobalAveragePool (r)
    f = Flatten (p)
    y = MatMul (f, w2)
}"""
BEHIND = """net (float[batch, 8, 6, 3] x) => (float[batch, 2] y) {
    t = Transpose <perm = [0, 3, 1, 2]> (x)
    h = Conv <strides = [2, 2]> (t, w1)
    r = Relu (h)
    p = GlobalAveragePool (r)
    f = Flatten (p)
    y = MatMul (f, w2)
}"""
SOUNDS = """net (float[batch, 40] x) => (float[batch, 2] y) {
    h = MatMul (x, w1)
    r = Tanh (h)
    y = MatMul (r, w2)
}"""


def normal(*shape):
    return (np.random.default_rng(3).standard_normal(shape) * 0.3).astype(np.float32)


def image_model(text=IMAGES):
    return build(text, w1=normal(4, 3, 3, 3), w2=normal(4, 2))


def sound_model(text=SOUNDS, size=40):
    return build(text, w1=normal(size, 5), w2=normal(5, 2))


def write_csv(path, arrays, separator=",", texts=NAMES):
    """`x` as columns f0, f1, …; labels as texts, or as numbers where there are none."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, delimiter=separator)
        rows.writerow([f"f{n}" for n in range(arrays["x"].shape[1])] + ["color"])
        for x, label in zip(arrays["x"], arrays["labels"], strict=True):
            rows.writerow([*map(repr, x.tolist()), texts[label] if texts else label])
    return path


def write_jsonl(path, arrays):
    rows = zip(arrays["x"].tolist(), arrays["labels"].tolist(), strict=True)
    path.write_text("".join(json.dumps({"x": x, "labels": y}) + "\n" for x, y in rows))
    return path


def write_images(folder, count=12, size=(8, 6), classes=("cat", "dog"), suffix="png"):
    """Images by class; returns what each has, [count, H, W, 3], in the order of the data."""
    from PIL import Image

    rng = np.random.default_rng(7)
    pixels = rng.integers(0, 256, (len(classes), count, *size, 3)).astype(np.uint8)
    for name, each in zip(classes, pixels, strict=True):
        (folder / name).mkdir(parents=True)
        for number, array in enumerate(each):
            Image.fromarray(array).save(folder / name / f"{number:03}.{suffix}")
    return pixels.reshape(-1, *size, 3)


def write_sounds(folder, count=6, length=40, rate=8000, width=2, channels=1):
    """Recordings by class; returns the mean of channels of each, [count, length]."""
    rng = np.random.default_rng(8)
    made = []
    for name in ("high", "low"):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            low, high = (0, 256) if width == 1 else (-(1 << (8 * width - 1)), 1 << (8 * width - 1))
            samples = rng.integers(low, high, (length, channels))
            write_wav(folder / name / f"{number}.wav", samples, rate, width)
            wide = (samples - (128 if width == 1 else 0)) / (1 << (8 * width - 1))
            made.append(wide.mean(1))
    return np.array(made, np.float32)


def write_wav(path, samples, rate, width):
    raw = np.ascontiguousarray(samples, "<i4").view(np.uint8).reshape(*samples.shape, 4)
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(samples.shape[1])
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(raw[..., :width].tobytes())
