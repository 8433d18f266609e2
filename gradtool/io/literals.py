"""The value of a Constant node as a tensor, in each of the possible forms of its attribute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from gradtool.errors import ModelError
from gradtool.graph.limits import Limits
from gradtool.io import external, tensors

_T = onnx.TensorProto
_NUMBERS = {
    "value_float": ("f", _T.FLOAT), "value_floats": ("floats", _T.FLOAT),
    "value_int": ("i", _T.INT64), "value_ints": ("ints", _T.INT64),
}  # fmt: skip
_DATA = ("float_data", "int32_data", "string_data", "int64_data", "raw_data", "double_data",
         "uint64_data", "data_location", "external_data")  # fmt: skip


def element_type(node: onnx.NodeProto) -> int | None:
    """The element type of a Constant; None where a call of its function decides, and of strings."""
    if len(node.attribute) != 1 or node.attribute[0].ref_attr_name:
        return None
    attribute = node.attribute[0]
    if attribute.name in _NUMBERS:
        return _NUMBERS[attribute.name][1]
    held = {"value": attribute.t, "sparse_value": attribute.sparse_tensor.values}
    kind = held[attribute.name].data_type if attribute.name in held else _T.STRING
    return None if kind == _T.STRING else kind


def tensor(attribute: onnx.AttributeProto) -> onnx.TensorProto:
    """The content of an attribute, dense; a message of a tensor is returned itself."""
    if attribute.name == "value":
        return attribute.t
    if attribute.name == "sparse_value":
        sparse = attribute.sparse_tensor
        values = numpy_helper.to_array(sparse.values)
        dense = np.zeros(math.prod(sparse.dims), values.dtype)
        dense[_positions(sparse)] = values
        found: onnx.TensorProto = numpy_helper.from_array(dense.reshape(tuple(sparse.dims)))
        found.data_type = sparse.values.data_type
        return found
    field, kind = _NUMBERS[attribute.name]
    numbers = np.array(getattr(attribute, field), onnx.helper.tensor_dtype_to_np_dtype(kind))
    return numpy_helper.from_array(numbers)


def put(attribute: onnx.AttributeProto, new: onnx.TensorProto) -> None:
    """Let an attribute hold other numbers, of the same type and shape."""
    if attribute.name == "value":
        fill(attribute.t, new)
        return
    numbers = numpy_helper.to_array(new)
    if attribute.name == "sparse_value":
        _put_sparse(attribute.sparse_tensor, numbers.ravel())
        return
    field = _NUMBERS[attribute.name][0]
    if numbers.ndim:
        del getattr(attribute, field)[:]
        getattr(attribute, field).extend(numbers.tolist())
    else:
        setattr(attribute, field, numbers.item())


def fill(held: onnx.TensorProto, new: onnx.TensorProto) -> None:
    """Copy the content of a tensor into another one; its own name and notes stay."""
    for field in _DATA:
        held.ClearField(field)
        value = getattr(new, field)
        if field == "external_data" or (field.endswith("_data") and field != "raw_data"):
            getattr(held, field).extend(value)
        elif new.HasField(field):
            setattr(held, field, value)


def check(sparse: onnx.SparseTensorProto, where: str, limits: Limits) -> None:
    """Refuse a sparse tensor whose places and numbers do not fit together.

    Raises:
        ModelError: with the rule that is broken.
    """
    nowhere = external.Folder(None)
    for part, what in ((sparse.values, "values"), (sparse.indices, "indices")):
        if part.data_location == _T.EXTERNAL:
            raise ModelError(f"{where}: sparse {what} cannot be external data")
        tensors.check(part, f"{where}: sparse {what}", nowhere, limits)
    kind = tensors.element_type(sparse.values.data_type, where)
    tensors.require_held(sparse.dims, kind, where, limits)
    total = tensors.nbytes(math.prod(sparse.dims), kind)
    if total > limits.constant_bytes:
        raise ModelError(f"{where}: is {total} bytes, the limit is {limits.constant_bytes}")
    count, rank = math.prod(sparse.values.dims), len(sparse.dims)
    if sparse.indices.data_type != _T.INT64 or len(sparse.values.dims) != 1:
        raise ModelError(f"{where}: sparse values need one axis, and indices of type int64")
    if list(sparse.indices.dims) not in ([count], [count, rank]):
        raise ModelError(
            f"{where}: sparse indices of shape {list(sparse.indices.dims)} are none of {count} "
            f"values of rank {rank}"
        )
    indices = numpy_helper.to_array(sparse.indices)
    most = np.array(sparse.dims if indices.ndim > 1 else math.prod(sparse.dims), np.int64)
    if ((indices < 0) | (indices >= most)).any():
        raise ModelError(f"{where}: a sparse index lies outside of {list(sparse.dims)}")
    if (np.diff(_positions(sparse)) <= 0).any():
        raise ModelError(f"{where}: sparse indices are not in rising order")


def _positions(sparse: onnx.SparseTensorProto) -> np.ndarray[Any, Any]:
    """The positions of values in the flat tensor."""
    indices = numpy_helper.to_array(sparse.indices)
    if indices.ndim == 1:
        return indices
    return np.asarray(np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims)))


def _put_sparse(sparse: onnx.SparseTensorProto, flat: np.ndarray[Any, Any]) -> None:
    """Store the nonzero numbers, and those stored before."""
    wide = flat.astype(np.float64) if flat.dtype.kind not in "fiub" else flat
    there = (wide != 0) | np.signbit(wide) if wide.dtype.kind == "f" else wide != 0
    there[_positions(sparse)] = True
    positions = np.flatnonzero(there)
    apart = len(sparse.indices.dims) > 1
    indices = np.stack(np.unravel_index(positions, tuple(sparse.dims)), -1) if apart else positions
    for part, numbers in ((sparse.values, flat[positions]), (sparse.indices, indices)):
        made = numpy_helper.from_array(np.ascontiguousarray(numbers))
        fill(part, made)
        part.dims[:] = made.dims
