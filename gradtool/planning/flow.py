"""Minimum cuts with exact 64-bit capacities: in the native library, or on scipy's 32-bit flow.

Both give the same cut, as it is the one with the fewest nodes beside the source. Source of the
latter: capacity scaling, Edmonds and Karp 1972, §1.2; unlike them each phase is a whole maximum
flow, of the capacities that are left divided by a power of two. An arc with its reverse then holds
less than 2^31: the rest of an arc grows by the flow against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gradtool.errors import UsageError
from gradtool.native import cuts, library

_BITS = 30
_LIMIT = 2**60
_INFINITE = 2**62
_NARROW = 2**16  # nodes that are sorted by their digits, in 16 bits
_TOO_MUCH = "the capacities of a cut add up to 2^60 or more: no machine has as many bytes"
_UNLIMITED = "the source reaches the sink over arcs without a limit"

Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


class Cut(NamedTuple):
    """The least total capacity from source to sink, and by node whether it is on the source's side.

    Of all least cuts this is the one with the fewest nodes beside the source.
    """

    value: int
    source_side: Mask


def min_cut(nodes: int, arcs: Iterable[tuple[int, int, int | None]], source: int, sink: int) -> Cut:
    """The minimum cut of `arcs` (tail, head, capacity), None being an infinite capacity.

    Raises:
        ValueError: source and sink are not separated by any arcs of known capacity.
        UsageError: the capacities add up to 2^60 or more.
    """
    rows = [(tail, head, -1 if c is None else c) for tail, head, c in arcs]
    try:
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    except OverflowError:
        raise UsageError(_TOO_MUCH) from None
    return Network(nodes, table[:, 0], table[:, 1]).cut(table[:, 2], source, sink)


class Network:
    """Nodes and arcs, for minimum cuts at several capacities."""

    def __init__(self, nodes: int, tails: Integers, heads: Integers) -> None:
        self.nodes, self._tails, self._heads = nodes, tails, heads

    def cut(self, capacities: Integers, source: int, sink: int) -> Cut:
        """The least cut; a capacity of -1 is more than any cut. Raises as `min_cut`."""
        known = capacities >= 0
        if int(np.sum(capacities[known], dtype=object)) >= _LIMIT:
            raise UsageError(_TOO_MUCH)
        limits = np.where(known, capacities, _INFINITE)
        if library.is_available():
            return self._native(limits, source, sink)
        residual = _Residual(self.nodes, self._tails, self._heads, limits, source, sink)
        value = residual.saturate()
        return Cut(value, residual.reached())

    def _native(self, limits: Integers, source: int, sink: int) -> Cut:
        value = np.zeros(1, dtype=np.int64)
        side = np.zeros(self.nodes, dtype=bool)
        work = np.empty(cuts.WORDS * self.nodes, dtype=np.int64)
        heads, starts, back, places = self._arcs
        left = np.zeros(len(heads), dtype=np.int64)
        left[places] = limits
        cuts.min_cut(heads, starts, back, left, value, work, side, source=source, sink=sink)()
        if value[0] < 0:
            raise ValueError(_UNLIMITED)
        return Cut(int(value[0]), side)

    @cached_property
    def _arcs(self) -> tuple[Integers, Integers, Integers, Integers]:
        """Heads, the first arc of each tail, the place of each arc's reverse; our places.

        Every arc has a reverse of its own.
        """
        count, from_ = len(self._tails), np.concatenate([self._tails, self._heads])
        narrow = from_.astype(np.uint16) if self.nodes <= _NARROW else from_
        order = narrow.argsort(kind="stable")
        starts = np.zeros(self.nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(from_, minlength=self.nodes), out=starts[1:])
        places = np.empty(2 * count, dtype=np.int64)
        places[order] = np.arange(2 * count)
        reverse = np.concatenate([places[count:], places[:count]])[order]
        heads = np.concatenate([self._heads, self._tails])[order]
        return heads, starts, reverse, places[:count]


class _Residual:
    """The residual graph of a flow: the capacity left of each arc."""

    def __init__(
        self, nodes: int, tails: Integers, heads: Integers, limits: Integers, source: int, sink: int
    ) -> None:
        self.nodes, self.source, self.sink = nodes, source, sink
        keys = np.concatenate([tails * nodes + heads, heads * nodes + tails])
        keys, places = np.unique(keys, return_inverse=True)
        left = np.zeros(len(keys), dtype=np.int64)
        np.add.at(left, places[: len(tails)], np.where(limits < _INFINITE, limits, 0))
        left[places[: len(tails)][limits == _INFINITE]] = _INFINITE
        is_loop = keys // nodes == keys % nodes
        self.keys, self.left = keys[~is_loop], left[~is_loop]
        self.tails, self.heads = self.keys // nodes, self.keys % nodes
        self.starts = np.searchsorted(self.tails, np.arange(nodes + 1)).astype(np.int32)

    def saturate(self) -> int:
        """Push a maximum flow and return its value."""
        ends = (self.tails == self.source, self.heads == self.sink)
        most = min(self._across(arcs) for arcs in ends)
        if most >= _INFINITE:
            most = self._across(self._border(self.left >= _INFINITE // 2))
        if most >= _INFINITE:
            raise ValueError(_UNLIMITED)
        total = 0
        while True:
            shift = max(0, most.bit_length() - _BITS)
            value = self._push(shift, most) << shift
            total += value
            if not shift:
                return total
            most = min(most - value, self._across(self._border(self.left >> shift > 0)))

    def _border(self, usable: Mask) -> Mask:
        """The arcs out of the set that the source reaches over usable ones."""
        side = self._search(usable)
        border: Mask = side[self.tails] & ~side[self.heads]
        if side[self.sink]:
            border = self.tails == self.source
        return border

    def _across(self, arcs: Mask) -> int:
        """Capacity of some arcs together; at least 2^62 if one of them is unlimited."""
        return int(np.sum(self.left[arcs], dtype=object))

    def _push(self, shift: int, most: int) -> int:
        """Push a maximum flow in units of 2^shift, at most `most`."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        units = np.minimum(self.left >> shift, most >> shift).astype(np.int32)
        graph = csr_array((units, self.heads.astype(np.int32), self.starts), (self.nodes,) * 2)
        result = maximum_flow(graph, self.source, self.sink)
        flow = result.flow
        tails = np.repeat(np.arange(self.nodes), np.diff(flow.indptr))
        places = np.searchsorted(self.keys, tails * self.nodes + flow.indices)
        self.left[places] -= flow.data.astype(np.int64) << shift
        return int(result.flow_value)

    def reached(self) -> Mask:
        """The nodes reached from the source over arcs with capacity left."""
        return self._search(self.left > 0)

    def _search(self, usable: Mask) -> Mask:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order

        graph = csr_array(
            (np.ones(int(usable.sum()), np.int8), (self.tails[usable], self.heads[usable])),
            (self.nodes,) * 2,
        )
        side = np.zeros(self.nodes, dtype=bool)
        side[breadth_first_order(graph, self.source, return_predecessors=False)] = True
        return side
