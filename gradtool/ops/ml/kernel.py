"""Operators of ai.onnx.ml that stand before or behind a network: encoders, features, models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays


@kernel("ai.onnx.ml::ArrayFeatureExtractor", on_device=False)
def array_feature_extractor(xp: Any, x: Array, indices: Array) -> Array:
    """Columns of x; a vector is one row."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return rows[..., indices.ravel()]


@kernel("ai.onnx.ml::Binarizer", strided=True)
def binarizer(xp: Any, x: Array, *, out: Arrays, threshold: float = 0.0) -> None:
    """1 above the threshold, else 0."""
    xp.greater(x, x.dtype.type(threshold), out=out[0], casting="unsafe")


@kernel("ai.onnx.ml::LabelEncoder", host=(0,), on_device=False)
def label_encoder(
    xp: Any, x: Array, *,
    keys_floats: Sequence[float] | None = None, keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None, keys_tensor: Array | None = None,
    values_floats: Sequence[float] | None = None, values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None, values_tensor: Array | None = None,
    default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Array | None = None,
) -> Array:  # fmt: skip
    """The value that belongs to each key, or the default."""
    given = (keys_floats, keys_int64s, keys_strings, keys_tensor)
    keys: Any = next((k for k in given if k is not None), None)
    kinds: tuple[tuple[Any, Any, Any], ...] = (
        (values_floats, default_float, np.float32),
        (values_int64s, default_int64, np.int64),
        (values_strings, default_string, object),
        (values_tensor, _scalar(default_tensor, values_tensor), getattr(values_tensor, "dtype", 0)),
    )
    values, default, dtype = next((k for k in kinds if k[0] is not None), kinds[0])
    if keys is None or values is None:
        raise ValueError(f"it has no {'keys' if keys is None else 'values'}")
    table = dict(zip(map(_key, list(keys)), list(values), strict=True))
    found = [table.get(_key(item), default) for item in x.ravel()]
    made = np.empty(len(found), dtype)
    made[:] = found
    return made.reshape(x.shape)


def _key(item: float | str) -> float | str:
    """A key as a dictionary finds it: NaN equals NaN, and bytes are text."""
    item = item.item() if isinstance(item, np.generic) else item
    item = item.decode() if isinstance(item, bytes) else item  # of an attribute
    return "NaN" if item != item else item  # noqa: PLR0124 - true of NaN alone


def _scalar(default: Array | None, values: Array | None) -> Any:
    if default is not None:
        return np.ravel(default)[0]
    kind = getattr(values, "dtype", np.dtype(object)).kind
    return {"i": -1, "f": -0.0}.get(kind, "_Unused")
