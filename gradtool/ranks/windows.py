"""Rows on other ranks, read and added to by MPI's one-sided communication.

A rank asks for rows under a shared lock that all hold from the beginning to the end (passive
target): the owner does nothing for it but to be in a call of MPI now and then.

Source: MPI 4.1, chapter 12 (one-sided communications).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtool.ranks.group import Array, Pending, Window


class RowWindow(Window):
    """The rows of an array on each rank of a communicator."""

    def __init__(self, mpi: Any, ranks: Any, own: Array) -> None:
        """Made by all ranks together; `own` are this one's rows, where they lie."""
        super().__init__(own)
        self._mpi = mpi
        self._kind = _kind(mpi, own.dtype)
        wide = own[:1].nbytes
        count = wide // own.dtype.itemsize if self._kind is not mpi.BYTE else wide
        self._row = self._kind.Create_contiguous(count)
        self._row.Commit()
        self._window = mpi.Win.Create(own, disp_unit=max(wide, 1), comm=ranks)
        self._window.Lock_all(mpi.MODE_NOCHECK)

    def read(self, rank: int, rows: Array, into: Array) -> Pending:
        there = self._rows(rows)
        request = self._window.Rget([into, len(rows), self._row], rank, [0, 1, there])
        return _Transfer(request, there)

    def add(self, rank: int, rows: Array, values: Array, *, largest: bool = False) -> Pending:
        there = self._rows(rows)
        op = self._mpi.MAX if largest else self._mpi.SUM
        request = self._window.Raccumulate(
            [values, len(rows), self._row], rank, [0, 1, there], op=op
        )
        return _Transfer(request, there)

    def publish(self) -> None:
        self._window.Sync()

    def flush(self) -> None:
        self._window.Flush_all()

    def collect(self) -> None:
        self._window.Sync()

    def close(self) -> None:
        self._window.Unlock_all()
        self._window.Free()
        self._row.Free()

    def _rows(self, rows: Array) -> Any:
        """The MPI type of these rows of a window, one after the other."""
        made = self._row.Create_indexed_block(1, rows.astype(np.int32))
        made.Commit()
        return made


class _Transfer:
    """A request of MPI, and its type."""

    def __init__(self, request: Any, kind: Any) -> None:
        self._request, self._kind = request, kind

    def test(self) -> bool:
        if self._kind is not None and self._request.Test():
            self._kind.Free()
            self._kind = None
        return self._kind is None


def _kind(mpi: Any, dtype: np.dtype[Any]) -> Any:
    """The MPI type for adding rows; rows of other types are only read, as bytes."""
    known = {np.float32: mpi.FLOAT, np.float64: mpi.DOUBLE, np.int64: mpi.INT64_T}
    return known.get(dtype.type, mpi.BYTE)
