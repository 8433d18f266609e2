"""Arrays of callers: of numpy, of a device, of other libraries, sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np

# What these libraries raise where an array is none that numpy or CuPy can take.
_REFUSALS = (ValueError, TypeError, RuntimeError, BufferError, AttributeError)


def array_of(given: Any) -> Any:
    """Array with a shape and a numpy type from a given object, without a copy where possible.

    An array on a CUDA device stays there, as CuPy's; a sparse matrix of SciPy stays sparse.

    Raises:
        ValueError: it is no array.
    """
    if isinstance(given, np.ndarray):
        return given
    try:
        if is_sparse(given):
            return given
        if hasattr(given, "__cuda_array_interface__"):
            import cupy

            return cupy.asarray(given)
        if hasattr(given, "__dlpack__") and not hasattr(given, "__array__"):
            return np.from_dlpack(given)
        return np.asarray(given)
    except (*_REFUSALS, ImportError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def is_array(given: Any) -> bool:
    """Whether something has a type of its own, unlike a number or a list of numbers."""
    kinds = ("__array__", "__dlpack__", "__cuda_array_interface__")
    return any(hasattr(given, kind) for kind in kinds) or is_sparse(given)


def is_sparse(given: Any) -> bool:
    """Whether something is a sparse matrix or array of SciPy."""
    return hasattr(given, "toarray") and hasattr(given, "nnz")


def as_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Convert a result of `array_of` to an array of numpy."""
    if isinstance(array, np.ndarray):
        return array
    if is_sparse(array):
        return np.asarray(array.toarray())
    return np.asarray(array.get() if hasattr(array, "__cuda_array_interface__") else array)


def put(target: np.ndarray[Any, Any], array: Any) -> None:
    """Copy a result of `array_of` into its place on the host."""
    if not isinstance(array, np.ndarray) and is_sparse(array) and target.flags.c_contiguous:
        array.toarray(out=target)
    else:
        np.copyto(target, as_numpy(array))
