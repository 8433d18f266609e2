"""A batch of real data for each sample: its inputs by name, and `labels`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIDE = 32

# Lewis Carroll, Alice's Adventures in Wonderland (1865), chapter I; in the public domain.
TEXT = b"""\
Alice was beginning to get very tired of sitting by her sister on the bank, and of having \
nothing to do: once or twice she had peeped into the book her sister was reading, but it had \
no pictures or conversations in it, "and what is the use of a book," thought Alice "without \
pictures or conversations?"
"""

# A class is a drawing: is the point (x, y), counted from the centre, inside, for a radius r?
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
    "disc": lambda x, y, r: x * x + y * y <= r * r,
    "ring": lambda x, y, r: (x * x + y * y <= r * r) & (x * x + y * y > (r - 3) * (r - 3)),
    "square": lambda x, y, r: np.maximum(abs(x), abs(y)) <= r,
    "frame": lambda x, y, r: abs(np.maximum(abs(x), abs(y)) - r) <= 1,
    "triangle": lambda x, y, r: (2 * abs(x) <= y + r) & (y <= r),
    "plus": lambda x, y, r: (np.minimum(abs(x), abs(y)) <= 1) & (np.maximum(abs(x), abs(y)) <= r),
    "saltire": lambda x, y, r: (abs(abs(x) - abs(y)) <= 1) & (abs(x) <= r),
    "rows": lambda x, y, r: (y % 6 < 3) & (abs(x) <= r) & (abs(y) <= r),
    "columns": lambda x, y, r: (x % 6 < 3) & (abs(x) <= r) & (abs(y) <= r),
    "checkers": lambda x, y, r: ((x // 3 + y // 3) % 2 == 0) & (abs(x) <= r) & (abs(y) <= r),
}


def cnn(batch: int = 8) -> dict[str, np.ndarray]:
    """Shapes of random size, place and colours under noise, around zero; labels[batch]."""
    random = np.random.Generator(np.random.PCG64(0)).random
    labels = 3 * np.arange(batch, dtype=np.int64) % len(SHAPES)
    draw = list(SHAPES.values())
    image = np.stack([picture(draw[label], random) for label in labels])
    return {"image": image.astype(np.float32), "labels": labels}


def picture(draw: Callable, random: Callable) -> np.ndarray:
    """One image [3, SIDE, SIDE] of values in -1.25 … 1.25."""
    radius = 8 + int(random() * 5)
    left, top = (SIDE // 2 + int(random() * 7) - 3 for _ in range(2))
    y, x = np.mgrid[:SIDE, :SIDE]
    inside = draw(x - left, y - top, radius)
    front, back = random((3, 1, 1)), -random((3, 1, 1))
    return np.where(inside, front, back) + (random((3, SIDE, SIDE)) - 0.5) / 2


def transformer(batch: int = 4, context: int = 32) -> dict[str, np.ndarray]:
    """Stretches of the text and the byte after each of theirs; both [batch, context]."""
    tokens, labels = stretches(batch, context)
    return {"tokens": tokens, "labels": labels}


def lstm(batch: int = 8, steps: int = 24) -> dict[str, np.ndarray]:
    """Stretches of the text and the letter after each of theirs; both [steps, batch]."""
    tokens, labels = stretches(batch, steps)
    return {"tokens": tokens.T, "labels": labels.T}


def stretches(count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Neighbouring stretches of the text, and the same one byte later; [count, length]."""
    codes = np.frombuffer(TEXT, np.uint8).astype(np.int64)
    return tuple(codes[s : s + count * length].reshape(count, length) for s in (0, 1))
