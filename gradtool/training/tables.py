"""Columns of Parquet and Arrow files as arrays (extra `data`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.text.extras import install

Array = np.ndarray[Any, Any]


def columns(path: Path) -> dict[str, Array]:
    """Arrays by the names of columns: numbers, and lists of them that are all of one length.

    Raises:
        UsageError: pyarrow is not installed, the file cannot be read, or a column is ragged, has
            nulls or no numbers.
    """
    try:
        import pyarrow as pa
        from pyarrow import feather, parquet
    except ImportError as error:
        raise UsageError(f"{path}: to read it takes pyarrow: {install('data')}") from error
    try:
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            table = feather.read_table(path, memory_map=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        said = " ".join(str(error).split())
        raise UsageError(f"{path}: cannot be read as {path.suffix[1:]}: {said}") from error
    return {name: _array(path, name, table.column(name)) for name in table.column_names}


def _array(path: Path, name: str, column: Any) -> Array:
    """A column, as [rows, *sizes of its lists]."""
    import pyarrow as pa

    chunk = column.combine_chunks()
    if isinstance(chunk, pa.ChunkedArray):
        chunk = pa.concat_arrays(chunk.chunks) if chunk.num_chunks else pa.array([], chunk.type)
    sizes = [len(chunk)]
    while pa.types.is_nested(chunk.type):
        if chunk.null_count:
            raise UsageError(f"{path}: column {name!r} has {chunk.null_count} nulls")
        if not any(of_lists(chunk.type) for of_lists in _lists()):
            raise UsageError(f"{path}: column {name!r} is {chunk.type}, no numbers")
        inner = chunk.flatten()
        size = len(inner) // len(chunk) if len(chunk) else 0
        lengths = np.unique(np.asarray(_lengths(chunk)))
        if lengths.size > 1 or (lengths.size and lengths[0] != size):
            raise UsageError(f"{path}: column {name!r} has lists of different lengths")
        sizes.append(size)
        chunk = inner
    if chunk.null_count:
        raise UsageError(f"{path}: column {name!r} has {chunk.null_count} nulls")
    found: Array = chunk.to_numpy(zero_copy_only=False)
    return found.reshape(sizes)


def _lists() -> tuple[Callable[[Any], bool], ...]:
    """What tells columns of lists."""
    from pyarrow import types

    return types.is_list, types.is_large_list, types.is_fixed_size_list


def _lengths(lists: Any) -> Any:
    from pyarrow import compute

    return compute.list_value_length(lists)
