"""Features of ai.onnx.ml before a model: scaled, normalized, filled in, joined, encoded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.ops.kernels import kernel
from gradtool.ops.shared.types import Array, Arrays


@kernel("ai.onnx.ml::Scaler", strided=True, may_inplace=(0,))
def scaler(
    xp: Any,
    x: Array,
    *,
    out: Arrays,
    scale: Sequence[float] = (1.0,),
    offset: Sequence[float] = (0.0,),
) -> None:
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
    xp: Any,
    x: Array,
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str | bytes] | None = None,
    zeros: int = 1,
) -> Array:
    """1 at the place of each element among the categories, else 0."""
    if cats_strings is None:
        y = x.astype(np.int64)[..., None] == xp.asarray(cats_int64s, np.int64)
    else:
        names = [name.decode() if isinstance(name, bytes) else name for name in cats_strings]
        y = np.asarray(x)[..., None] == np.array(names, dtype=object)
    if not zeros and not y.any(axis=-1).all():
        raise ValueError("an element is none of the categories")
    return y.astype(np.float32)
