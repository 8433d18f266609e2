"""Operators of ai.onnx.ml that stand before or behind a network: encoders, features, models."""

from __future__ import annotations

import numpy as np

from gradtool.exec.kernel import kernel
from gradtool.exec.kernels import _ml_features, _trees  # noqa: F401 - they register


@kernel("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(xp, x, indices):
    """Columns of x; a vector is one row."""
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    return rows[..., indices.ravel()]


@kernel("ai.onnx.ml::Binarizer", strided=True)
def binarizer(xp, x, *, out, work, threshold=0.0):
    """1 above the threshold, else 0."""
    xp.greater(x, x.dtype.type(threshold), out=out[0], casting="unsafe")


@kernel("ai.onnx.ml::LabelEncoder", host=(0,))
def label_encoder(
    xp, x, *, keys_floats=None, keys_int64s=None, keys_strings=None, keys_tensor=None,
    values_floats=None, values_int64s=None, values_strings=None, values_tensor=None,
    default_float=-0.0, default_int64=-1, default_string="_Unused", default_tensor=None,
):  # fmt: skip
    """The value that belongs to each key, or the default."""
    keys = next(k for k in (keys_floats, keys_int64s, keys_strings, keys_tensor) if k is not None)
    kinds = (
        (values_floats, default_float, np.float32),
        (values_int64s, default_int64, np.int64),
        (values_strings, default_string, object),
        (values_tensor, _scalar(default_tensor, values_tensor), getattr(values_tensor, "dtype", 0)),
    )
    values, default, dtype = next(k for k in kinds if k[0] is not None)
    table = dict(zip(map(_key, list(keys)), list(values), strict=True))
    found = [table.get(_key(item), default) for item in x.ravel()]
    made = np.empty(len(found), dtype)
    made[:] = found
    return made.reshape(x.shape)


def _key(item):
    """A key as a dictionary finds it: NaN equals NaN, and bytes are text."""
    item = item.item() if isinstance(item, np.generic) else item
    item = item.decode() if isinstance(item, bytes) else item  # of an attribute
    return "NaN" if item != item else item  # noqa: PLR0124 - true of NaN alone


def _scalar(default, values):
    if default is not None:
        return np.ravel(default)[0]
    kind = getattr(values, "dtype", np.dtype(object)).kind
    return {"i": -1, "f": -0.0}.get(kind, "_Unused")
