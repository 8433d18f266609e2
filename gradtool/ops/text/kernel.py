"""Strings: arrays of Python objects, which live on the host and in no plan."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
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
    xp: Any,
    x: Array,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    stopwords: Sequence[str] = (),
    locale: Array | None = None,
) -> Array:
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
