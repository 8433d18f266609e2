"""TfIdfVectorizer: how often n-grams of a pool occur, with gaps of equal length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array


@kernel("TfIdfVectorizer", host=(0,), on_device=False)
def tf_idf_vectorizer(
    xp: Any, x: Array, *,
    mode: str, min_gram_length: int, max_gram_length: int, max_skip_count: int,
    ngram_counts: Sequence[int], ngram_indexes: Sequence[int], pool_int64s: Sequence[int] = (),
    pool_strings: Sequence[Any] = (), weights: Sequence[float] = (),
) -> Array:  # fmt: skip
    """The counts (TF), a weight where there is any (IDF), or counts times weights (TFIDF)."""
    pool = _pool(list(pool_int64s or pool_strings), list(ngram_counts))
    places = {g: ngram_indexes[n] for n, g in enumerate(pool)}
    sizes = range(max(1, min_gram_length), min(max_gram_length, len(ngram_counts)) + 1)
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    counts = np.zeros((len(rows), max(ngram_indexes) + 1), dtype=np.float32)
    for row, items in zip(counts, rows.tolist(), strict=True):
        for gram in _grams(items, sizes, max_skip_count):
            if gram in places:
                row[places[gram]] += 1
    scale = np.ones(counts.shape[1], dtype=np.float32)
    if len(weights):
        scale[list(ngram_indexes)] = weights
    if mode == "IDF":
        counts = (counts > 0) * scale
    elif mode == "TFIDF":
        counts = counts * scale
    return counts.astype(np.float32).reshape((*x.shape[:-1], -1))


def _pool(items: Sequence[Any], counts: Sequence[int]) -> list[tuple[Any, ...]]:
    """The n-grams in the order of their numbers."""
    grams: list[tuple[Any, ...]] = []
    ends = [min(stop, len(items)) for stop in (*counts[1:], len(items))]
    for size, (start, stop) in enumerate(zip(counts, ends, strict=True), 1):
        grams += [tuple(items[i : i + size]) for i in range(start, stop, size)]
    return grams


def _grams(items: Sequence[int], sizes: range, skips: int) -> Iterator[tuple[int, ...]]:
    """Every n-gram of a row: for n = 1 each item once, else with each number of skipped items."""
    for size in sizes:
        most = 0 if size == 1 else min(skips, (len(items) - 1) // (size - 1))
        for step in range(1, most + 2):
            reach = (size - 1) * step
            for start in range(len(items) - reach):
                yield tuple(items[start : start + reach + 1 : step])
