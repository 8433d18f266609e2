"""Strings, and n-grams of a pool: arrays of Python objects, on the host and in no plan."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array


def strings(values: Sequence[str], shape: Sequence[int]) -> Array:
    """An array of strings."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(shape)


@kernel("StringConcat", on_device=False)
def string_concat(xp: Any, a: Array, b: Array) -> Array:
    """`y = a + b`, broadcast."""
    a, b = np.broadcast_arrays(a, b)
    joined = [str(p) + str(q) for p, q in zip(a.ravel(), b.ravel(), strict=True)]
    return strings(joined, a.shape)


@kernel("StringSplit", on_device=False)
def string_split(
    xp: Any, x: Array, *, delimiter: str | None = None, maxsplit: int | None = None
) -> tuple[Array, Array]:
    """The parts of each string on a last axis, padded with empty strings, and their numbers."""
    most = -1 if maxsplit is None else maxsplit
    parts = [str(s).split(delimiter or None, most) for s in x.ravel()]
    counts = np.array([len(p) for p in parts], dtype=np.int64)
    width = int(counts.max(initial=0))
    padded = [part for p in parts for part in (*p, *[""] * (width - len(p)))]
    return strings(padded, (*x.shape, width)), counts.reshape(x.shape)


@kernel("RegexFullMatch", ahead=False, on_device=False)
def regex_full_match(xp: Any, x: Array, *, pattern: str) -> Array:
    """Whether the whole of each string matches; the pattern is read by Python's `re`."""
    compiled = re.compile(pattern)
    found = [compiled.fullmatch(str(s)) is not None for s in x.ravel()]
    return np.array(found, dtype=bool).reshape(x.shape)


@kernel("StringNormalizer", on_device=False)
def string_normalizer(
    xp: Any, x: Array, *, case_change_action: str = "NONE", is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (), locale: Array | None = None,
) -> Array:  # fmt: skip
    """Words without accents, stop words left out, in lower or upper case.

    Words are compared with stop words in the case asked for, unless it is sensitive. If no
    word is left, one empty string is.
    """
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)
    compare = str if is_case_sensitive else str.lower
    stops = {compare(word) for word in stopwords}
    words = [_plain(str(word)) for word in x.ravel()]
    kept = [change(w) for w in words if w and compare(w) not in stops]
    kept = kept or [""]
    return strings(kept, (1, len(kept)) if x.ndim == 2 else (len(kept),))


def _plain(word: str) -> str:
    if word.isascii():
        return word
    split = unicodedata.normalize("NFKD", word)
    return "".join(c for c in split if not unicodedata.combining(c))


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
