"""Columns of Parquet and Arrow as arrays (extra `data`): read a piece at a time, none mapped.

What a column takes of memory is known from the first piece, before the others are read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.io.stored import opened
from gradtool.text.extras import install
from gradtool.text.units import format_bytes
from gradtool.text.words import some
from gradtool.training.columns import Array, Categories, Unread

SUFFIXES = (".parquet", ".arrow", ".arrows", ".feather")
STATE, SPLITS = "state.json", "dataset_dict.json"  # of a folder that `datasets` saved
_INFO = "dataset_info.json"
_FILE = b"ARROW1"  # how an Arrow file begins; a stream does not
_MOST_STATE = 1 << 24  # bytes
_PIECE = 1 << 16  # rows of a Parquet file that are read at once
_NUMBERS = 1 << 22  # of one piece


def columns(path: Path, categories: Categories | None = None) -> dict[str, Array | Unread]:
    """Arrays by the names of columns: numbers, and lists of them that are all of one length.

    A folder is one that `datasets.save_to_disk` made: its shards follow each other.

    Raises:
        UsageError: pyarrow is not installed, the file cannot be read, takes more memory than there
            is, or a column is ragged, has nulls or no numbers, or the name of another.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UsageError(f"{path}: to read it takes pyarrow: {install('data')}") from error
    kind = path.suffix[1:] if path.suffix in SUFFIXES else "a data set that was saved"
    with ExitStack() as stack:
        files = _shards(path) if path.is_dir() else [path]
        try:
            read = _parquet if path.suffix == ".parquet" else _arrow
            tables = [read(stack.enter_context(opened(each))) for each in files]
            found = categories or Categories()
            found.require(str(path), tables[0].schema.names)
            return _gathered(path, _chained(path, tables), found)
        except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
            said = " ".join(str(error).split())
            raise UsageError(f"{path}: cannot be read as {kind}: {said}") from error


def _shards(folder: Path) -> list[Path]:
    """The files of a folder that `datasets.save_to_disk` made, in their order."""
    if (folder / SPLITS).is_file():
        names = _json(folder / SPLITS).get("splits")
        known = [n for n in names if isinstance(n, str)] if isinstance(names, list) else []
        first = known[0] if known else "train"
        raise UsageError(f"{folder}: holds the sets {some(known)}: name one, as {folder / first}")
    listed = _json(folder / STATE).get("_data_files")
    names = [each.get("filename") for each in listed] if isinstance(listed, list) else []
    if not names or not all(isinstance(n, str) and n and Path(n).name == n for n in names):
        raise UsageError(f"{folder / STATE}: names no files of this folder")
    return [folder / name for name in names]


def classes_of(folder: Path) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, from a folder saved by `datasets`."""
    features = _json(folder / _INFO).get("features") if (folder / _INFO).is_file() else None
    found = features.items() if isinstance(features, dict) else ()
    return {
        name: tuple(each["names"]) for name, each in found
        if isinstance(each, dict) and isinstance(each.get("names"), list)
        and all(isinstance(text, str) for text in each["names"])
    }  # fmt: skip


def _json(path: Path) -> dict[str, Any]:
    with opened(path) as file:
        try:
            found = json.loads(file.read(_MOST_STATE))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: is no JSON: {error}") from error
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class _Table:
    """The columns of a file, its rows, and the reader of some columns by pieces."""

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

    begin = file.read(len(_FILE))
    file.seek(0)
    if begin == _FILE:
        table = ipc.open_file(file)
        numbers = range(table.num_record_batches)
        rows = sum(table.get_batch(number).num_rows for number in numbers)
        return _Table(table.schema, rows, lambda _: map(table.get_batch, numbers))
    with ipc.open_stream(file) as stream:
        schema, rows = stream.schema, sum(batch.num_rows for batch in stream)

    def pieces(_: list[str]) -> Iterator[Any]:
        file.seek(0)
        yield from ipc.open_stream(file)

    return _Table(schema, rows, pieces)


def _chained(path: Path, tables: Sequence[_Table]) -> _Table:
    """Tables of the same columns as one."""
    first = tables[0].schema
    if not all(each.schema.equals(first) for each in tables):
        raise UsageError(f"{path}: its files have different columns")
    rows = sum(each.rows for each in tables)
    return _Table(
        first, rows, lambda names: chain.from_iterable(each.pieces(names) for each in tables)
    )


def _gathered(path: Path, table: _Table, categories: Categories) -> dict[str, Array | Unread]:
    """The columns of all pieces, each in an array that is made when the first piece is read.

    Columns of something else than numbers are not read.
    """
    names = list(table.schema.names)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"{path}: two columns are called {twice!r}")
    kinds = {name: table.schema.field(name).type for name in names}
    of = {
        name: partial(_codes, categories) if categories.has(name) and _is_text(kinds[name])
        else _array
        for name in names if _is_numeric(kinds[name]) or categories.has(name)
    }  # fmt: skip
    made: dict[str, Array] = {}
    done = 0
    for piece in table.pieces(list(of)):
        found = {name: read(path, name, piece.column(name)) for name, read in of.items()}
        made = made or _room(path, found, table.rows)
        for name, array in found.items():
            if array.shape[1:] != made[name].shape[1:] and len(array):
                raise UsageError(f"{path}: column {name!r} has lists of different lengths")
            made[name][done : done + len(array)] = array.reshape(-1, *made[name].shape[1:])
        done += piece.num_rows
    if done != table.rows and of:
        raise UsageError(f"{path}: has {done} rows of the {table.rows} that it says")
    empty = table.schema.empty_table()
    made = made or {name: read(path, name, empty.column(name)) for name, read in of.items()}
    for name in [name for name, read in of.items() if read is not _array]:
        made[name] = categories.finished(name, made[name])
    return {name: made[name] if name in made else _unread(path, name, kinds[name], table.rows)
            for name in names}  # fmt: skip


def _unread(path: Path, name: str, kind: Any, rows: int) -> Unread:
    helps = f": --categories {name} takes texts as classes" if _is_text(kind) else ""
    return Unread((rows,), f"{path}: column {name!r} is {kind}, no numbers{helps}")


def _codes(categories: Categories, path: Path, name: str, column: Any) -> Array:
    """The texts of a column or a piece of one, as codes [rows]."""
    if column.null_count:
        raise UsageError(f"{path}: column {name!r} has {column.null_count} nulls")
    try:
        return categories.codes(name, column.to_pylist())
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind))


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
    """The test for columns of lists."""
    from pyarrow import types

    return types.is_list, types.is_large_list, types.is_fixed_size_list


def _lengths(lists: Any) -> Any:
    from pyarrow import compute

    return compute.list_value_length(lists)
