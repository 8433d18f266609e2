"""Operators of ai.onnx.ml that stand before or behind a network: encoders, features, models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
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


@kernel("ai.onnx.ml::Scaler", strided=True, may_inplace=(0,))
def scaler(
    xp: Any, x: Array, *,
    out: Arrays, scale: Sequence[float] = (1.0,), offset: Sequence[float] = (0.0,),
) -> None:  # fmt: skip
    """`(x - offset) · scale`."""
    y = out[0]
    xp.subtract(x, xp.asarray(offset, np.float32), out=y, casting="unsafe")
    xp.multiply(y, xp.asarray(scale, np.float32), out=y)


@kernel("ai.onnx.ml::Imputer", strided=True, may_inplace=(0,), work=lambda x: [_mask(x)])
def imputer(
    xp: Any, x: Array, *,
    out: Arrays, work: Arrays, imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Sequence[int] | None = None, replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> None:  # fmt: skip
    """x, another value in place of the one that stands for a missing value."""
    floats = imputed_value_floats is not None
    replaced = replaced_value_float if floats else replaced_value_int64
    if replaced != replaced:  # noqa: PLR0124 - true of NaN alone
        xp.isnan(x, out=work[0])
    else:
        xp.equal(x, x.dtype.type(replaced), out=work[0])
    values = xp.asarray(imputed_value_floats if floats else imputed_value_int64s, x.dtype)
    if out[0] is not x:
        xp.copyto(out[0], x)
    xp.copyto(out[0], values, where=work[0])


def _mask(x: Spec) -> Spec:
    from gradtool.graph.specs import Spec

    return Spec(x.shape, np.dtype(bool))


@kernel("ai.onnx.ml::Normalizer", temporaries=lambda x: 12 * math.prod(x.shape))
def normalizer(xp: Any, x: Array, *, norm: str = "MAX") -> Array:
    """Rows divided by their largest element, Σ |x| or √Σ x²; by nothing where that is zero."""
    x = x if x.dtype.kind == "f" else x.astype(np.float32)
    if norm == "MAX":
        size = x.max(axis=-1, keepdims=True) if x.shape[-1] else xp.ones((*x.shape[:-1], 1))
    elif norm == "L1":
        size = abs(x).sum(axis=-1, keepdims=True)
    else:
        size = xp.sqrt((x * x).sum(axis=-1, keepdims=True))
    return x / xp.where(size == 0, 1, size)


@kernel("ai.onnx.ml::FeatureVectorizer")
def feature_vectorizer(
    xp: Any, *inputs: Array, out: Arrays, inputdimensions: Sequence[int]
) -> None:
    """Columns side by side, each input cut or filled up with zeros to its number of columns."""
    start = 0
    for x, count in zip(inputs, inputdimensions, strict=True):
        rows = (x[None] if x.ndim == 1 else x.reshape(len(x), math.prod(x.shape[1:])))[:, :count]
        filled = start + rows.shape[1]
        xp.copyto(out[0][:, start:filled], rows, casting="unsafe")
        out[0][:, filled : start + count] = 0
        start += count


@kernel("ai.onnx.ml::OneHotEncoder", temporaries=lambda x: 16 * math.prod(x.shape))
def one_hot_encoder(
    xp: Any, x: Array, *, cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str | bytes] | None = None, zeros: int = 1,
) -> Array:  # fmt: skip
    """1 at the place of each element among the categories, else 0."""
    if cats_strings is None:
        y = x.astype(np.int64)[..., None] == xp.asarray(cats_int64s, np.int64)
    else:
        names = [name.decode() if isinstance(name, bytes) else name for name in cats_strings]
        y = np.asarray(x)[..., None] == np.array(names, dtype=object)
    if not zeros and not y.any(axis=-1).all():
        raise ValueError("an element is none of the categories")
    return y.astype(np.float32)
