"""Checks of tensors as the file stores them: type, declared size, and the bytes there are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph.limits import Limits
from gradtool.io import external
from gradtool.shapes import limits as shape_limits

_T = onnx.TensorProto
_PACKED: dict[int, int] = {_T.INT4: 2, _T.UINT4: 2, _T.FLOAT4E2M1: 2, _T.INT2: 4, _T.UINT2: 4}
_FIELDS: dict[str, tuple[int, ...]] = {
    "float_data": (_T.FLOAT, _T.COMPLEX64),
    "double_data": (_T.DOUBLE, _T.COMPLEX128),
    "int64_data": (_T.INT64,),
    "uint64_data": (_T.UINT32, _T.UINT64),
    "string_data": (_T.STRING,),
}
_OTHER_FIELDS = tuple(_FIELDS)
_ELEMENT_TYPES = frozenset(_T.DataType.values()) - {_T.UNDEFINED}


def element_type(number: int, where: str) -> ir.DataType:
    """The element type of a number of ONNX. Raises ModelError if there is none."""
    if number not in _ELEMENT_TYPES:
        raise ModelError(f"{where}: {number} is not an element type")
    return ir.DataType(number)


def require_held(dims: Sequence[int], dtype: ir.DataType, where: str, limits: Limits) -> None:
    """Refuse a declared shape impossible for an array; an unknown size is 0."""
    if len(dims) > limits.rank:
        raise ModelError(f"{where}: has {len(dims)} axes, the limit is {limits.rank}")
    if any(dim < 0 for dim in dims):
        raise ModelError(f"{where}: its shape {list(dims)} has the negative size {min(dims)}")
    total = shape_limits.least_bytes(dims, dtype)
    if total > limits.tensor_bytes:
        raise ModelError(
            f"{where}: declares {total} bytes with the shape {list(dims)}, the limit is "
            f"{limits.tensor_bytes}"
        )


def nbytes(elements: int, dtype: ir.DataType) -> int:
    """Bytes of so many elements, packed and rounded up; 0 for strings."""
    if dtype == ir.DataType.STRING:
        return 0
    return -(-elements * dtype.bitwidth // 8)


def check(tensor: onnx.TensorProto, where: str, folder: external.Folder, limits: Limits) -> None:
    """Refuse a tensor whose data and declaration disagree.

    Raises:
        ModelError: with the rule that is broken.
    """
    dtype = element_type(tensor.data_type, where)
    require_held(tensor.dims, dtype, where, limits)
    elements = math.prod(tensor.dims)
    total = nbytes(elements, dtype)
    if tensor.HasField("segment"):
        raise ModelError(f"{where}: is stored in segments, which ONNX never defined")
    if tensor.data_location == _T.EXTERNAL:
        if dtype == ir.DataType.STRING:
            raise ModelError(f"{where}: strings cannot be external data")
        external.check(tensor, total, folder, where)
        return
    _check_inline(tensor, elements, total, where)


def _check_inline(tensor: onnx.TensorProto, elements: int, total: int, where: str) -> None:
    fields = [name for name in (*_OTHER_FIELDS, "int32_data") if len(getattr(tensor, name))]
    if tensor.HasField("raw_data") and (tensor.raw_data or not fields):
        fields.append("raw_data")
    if len(fields) > 1:
        raise ModelError(f"{where}: has data in {' and in '.join(fields)}")
    if not fields:
        if elements:
            raise ModelError(f"{where}: shape {list(tensor.dims)} has no data")
        return
    field = fields[0]
    if field == "raw_data":
        if tensor.data_type == _T.STRING:
            raise ModelError(f"{where}: strings cannot be raw data")
        found, needed, unit = len(tensor.raw_data), total, "bytes"
    else:
        _check_field(tensor.data_type, field, where)
        found, needed, unit = len(getattr(tensor, field)), _entries(tensor, elements), "entries"
    if found != needed:
        raise ModelError(
            f"{where}: has {found} {unit} of data, shape {list(tensor.dims)} needs {needed}"
        )


def _check_field(data_type: int, field: str, where: str) -> None:
    wide = {number for numbers in _FIELDS.values() for number in numbers}
    fits = data_type not in wide if field == "int32_data" else data_type in _FIELDS[field]
    if not fits:
        raise ModelError(f"{where}: {ir.DataType(data_type).name} data cannot be in {field}")


def _entries(tensor: onnx.TensorProto, elements: int) -> int:
    if tensor.data_type in (_T.COMPLEX64, _T.COMPLEX128):
        return 2 * elements
    return -(-elements // _PACKED.get(tensor.data_type, 1))
