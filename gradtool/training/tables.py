"""Columns of Parquet and Arrow files as arrays (extra `data`): read a piece at a time, none mapped.

What a column takes of memory is known from the first piece, before the others are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.io.stored import opened
from gradtool.text.extras import install
from gradtool.text.units import format_bytes

Array = np.ndarray[Any, Any]
_PIECE = 1 << 16  # rows of a Parquet file that are read at once
_NUMBERS = 1 << 22  # of one piece


def columns(path: Path) -> dict[str, Array]:
    """Arrays by the names of columns: numbers, and lists of them that are all of one length.

    Raises:
        UsageError: pyarrow is not installed, the file cannot be read, takes more memory than there
            is, or a column is ragged, has nulls or no numbers, or the name of another.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError(f"{path}: to read it takes pyarrow: {install('data')}") from error
    with opened(path) as file:
        try:
            table = (_parquet if path.suffix == ".parquet" else _arrow)(file)
            return _gathered(path, table)
        except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
            said = " ".join(str(error).split())
            raise UsageError(f"{path}: cannot be read as {path.suffix[1:]}: {said}") from error


@dataclass(frozen=True)
class _Table:
    """The columns of a file, its rows, and what reads those of some columns a piece at a time."""

    schema: Any
    rows: int
    pieces: Callable[[list[str]], Iterator[Any]]


def _parquet(file: Any) -> _Table:
    from pyarrow import parquet

    table = parquet.ParquetFile(file)
    about = table.metadata
    groups = [about.row_group(number) for number in range(about.num_row_groups)]
    numbers = sum(g.column(c).num_values for g in groups for c in range(about.num_columns))
    rows = max(min(_PIECE, _NUMBERS * about.num_rows // max(numbers, 1)), 1)
    return _Table(
        table.schema_arrow,
        about.num_rows,
        lambda names: table.iter_batches(rows, columns=names, use_threads=False),
    )


def _arrow(file: Any) -> _Table:
    from pyarrow import ipc

    table = ipc.open_file(file)
    numbers = range(table.num_record_batches)
    rows = sum(table.get_batch(number).num_rows for number in numbers)
    return _Table(table.schema, rows, lambda _: map(table.get_batch, numbers))


def _gathered(path: Path, table: _Table) -> dict[str, Array]:
    """The columns of all pieces, each in an array that is made when the first piece is read.

    Columns of something else than numbers are not read: each is an array of nothing.
    """
    names = list(table.schema.names)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: two columns are called {twice!r}")
    read = [name for name in names if _is_numeric(table.schema.field(name).type)]
    made: dict[str, Array] = {}
    done = 0
    for piece in table.pieces(read):
        found = {name: _array(path, name, piece.column(name)) for name in read}
        made = made or _room(path, found, table.rows)
        for name, array in found.items():
            if array.shape[1:] != made[name].shape[1:] and len(array):
                raise UsageError(f"{path}: column {name!r} has lists of different lengths")
            made[name][done : done + len(array)] = array.reshape(-1, *made[name].shape[1:])
        done += piece.num_rows
    if done != table.rows and read:
        raise UsageError(f"{path}: has {done} rows of the {table.rows} that it says")
    empty = table.schema.empty_table()
    made = made or {name: _array(path, name, empty.column(name)) for name in read}
    nothing = np.broadcast_to(np.array(None), table.rows)
    return {name: made.get(name, nothing) for name in names}


def _is_numeric(kind: Any) -> bool:
    """Whether elements are numbers; what is nested otherwise is refused where it is read."""
    from pyarrow import types

    while any(of_lists(kind) for of_lists in _lists()) or types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        of(kind) for of in (types.is_nested, types.is_integer, types.is_floating, types.is_boolean)
    )


def _room(path: Path, read: dict[str, Array], rows: int) -> dict[str, Array]:
    """Arrays for all rows, of which some are read."""
    free = available_memory.free()
    total = sum(prod(a.shape[1:]) * a.dtype.itemsize for a in read.values()) * rows
    if free is not None and total > free:
        raise UsageError(
            f"{path}: its columns take {format_bytes(total)} of memory, there is room for "
            f"{format_bytes(free)}"
        )
    return {name: np.empty((rows, *a.shape[1:]), a.dtype) for name, a in read.items()}


def _array(path: Path, name: str, column: Any) -> Array:
    """A column or a piece of one, as [rows, *sizes of its lists]."""
    import pyarrow as pa

    chunk = column
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
