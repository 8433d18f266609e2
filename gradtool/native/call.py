"""The words of a call: the arguments of a kernel of the library, and its call from Python.

The words of a block may be laid out for other operands, which lie elsewhere but in the same way: so
a kernel is bound once for all like steps, on operands that lie nowhere.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gradtool.native import SLOTS, library

Array = np.ndarray[Any, Any]
_WORD = 8  # bytes
_NOWHERE, _SHIFT = 0x5A5A << 48, 44  # an address that no memory has, and bits within an operand
_HALF = 1 << (_SHIFT - 1)
_BEYOND = _NOWHERE + (1 << 58)
OPERANDS = (_BEYOND - _NOWHERE) >> _SHIFT


def nowhere(operand: int, shape: Sequence[int], dtype: Any, strides: Sequence[int]) -> Array:
    """An array without memory: an operand of a block, by number, to be laid out later."""
    start = (operand << _SHIFT) + _HALF  # strides may be negative
    return np.ndarray(shape, dtype, _empty_space(), start, strides)


class _Space:
    """Where no memory is."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        whole = (_BEYOND - _NOWHERE,)
        return {"data": (_NOWHERE, False), "shape": whole, "typestr": "|u1", "version": 3}


@cache
def _empty_space() -> Array:
    return np.asarray(_Space())


class Part(NamedTuple):
    """A kernel and its words: so many `pointers`, then sizes and numbers.

    Some point to `tables` of words; numbers that are `read` each time have addresses of their own.
    """

    kernel: int
    words: tuple[Any, ...]
    layout: Layout
    tables: Sequence[tuple[int, Array]]
    read: Sequence[tuple[int, int]]


class Block(NamedTuple):
    """Parts one after the other, as numbers.

    `rows` are kernels, and at which of the `words` their own begin.  `links` are pointers: at which
    word, to which operand (-1: the block itself), how many bytes behind its start.
    """

    words: Array
    rows: Array
    links: Array

    @classmethod
    def of(cls, parts: Iterable[Part]) -> Block:
        """The words of some parts."""
        data, rows, links = bytearray(), list[tuple[int, int]](), list[tuple[int, int, int]]()
        for part in parts:
            start, layout = len(data) // _WORD, part.layout
            data += layout.packed.pack(*part.words)
            links += _operands(part.words[: layout.count], start)
            for at, table in part.tables:
                links.append((start + at, -1, len(data)))
                links += _operands(table.reshape(-1).tolist(), len(data) // _WORD)
                data += table.tobytes()
            for at, address in part.read:
                rows.append((_number(), len(data) // _WORD))
                links += _operands([address], len(data) // _WORD)
                links.append((len(data) // _WORD + 1, -1, (start + at) * _WORD))
                data += _NUMBER.pack(address, 0)
            rows.append((part.kernel, start))
        return cls(
            np.frombuffer(data, np.int64), np.array(rows, np.int64).reshape(-1, 2),
            np.array(links, np.int64).reshape(-1, 3),
        )  # fmt: skip


def _operands(words: Sequence[int], start: int) -> list[tuple[int, int, int]]:
    """The links among words to operands that lie nowhere."""
    mask = (1 << _SHIFT) - 1
    return [
        (start + at, (word - _NOWHERE) >> _SHIFT, (word & mask) - _HALF)
        for at, word in enumerate(words)
        if _NOWHERE <= word < _BEYOND
    ]


def laid(blocks: Sequence[Block], addresses: Sequence[Sequence[int]]) -> list[Call]:
    """Calls of blocks on operands at these addresses, all in one piece of memory."""
    if not blocks:
        return []
    words = np.concatenate([block.words for block in blocks])
    starts = np.cumsum([0, *(len(block.words) for block in blocks)])
    operands = np.array([0, *(each for some in addresses for each in some)], np.int64)
    firsts = np.cumsum([1, *map(len, addresses)])
    base = words.__array_interface__["data"][0]
    links = np.concatenate([block.links for block in blocks])
    counts = [len(block.links) for block in blocks]
    at, own = np.repeat(starts[:-1], counts), links[:, 1] < 0
    places = operands[np.where(own, 0, np.repeat(firsts[:-1], counts) + links[:, 1])]
    words[at + links[:, 0]] = np.where(own, base + _WORD * at, places) + links[:, 2]
    rows = np.concatenate([block.rows for block in blocks])
    counts = [len(block.rows) for block in blocks]
    rows[:, 1] = base + _WORD * (rows[:, 1] + np.repeat(starts[:-1], counts))
    ends = np.cumsum([0, *counts]).tolist()
    return [Call.of(rows[a:b], words) for a, b in pairwise(ends)]


class _Rows(ctypes.c_void_p):
    """The address of rows, which keeps them and the targets of pointers in their words."""

    kept: object = ()


class Call:
    """Kernels with their words, one after the other: one call of C runs them, as often as asked.

    It keeps the targets of pointers in the words alive; `operands` are arrays to keep beside.
    """

    __slots__ = ("_kept", "_laid", "_run", "operands", "parts")

    def __init__(self, parts: Iterable[Part], kept: object = ()) -> None:
        """The call of `parts`, which is laid out when it is first asked for."""
        self.parts: tuple[Part, ...] | None = tuple(parts)
        self.operands: object = ()
        self._kept = kept
        self._laid: tuple[Array, Array] | None = None
        self._run: Callable[[], object] | None = None

    @classmethod
    def of(cls, rows: Array, words: Array, kept: object = ()) -> Call:
        """The call of rows, kernels and addresses of their words, which lie in some memory."""
        made = cls((), kept)
        made.parts, made._laid = None, (rows, words)
        return made

    @property
    def rows(self) -> Array:
        """Kernels, and the addresses of their words."""
        return self._memory[0]

    @property
    def words(self) -> Array:
        """The words in their place."""
        return self._memory[1]

    @property
    def _memory(self) -> tuple[Array, Array]:
        if self._laid is None:
            (found,) = laid([Block.of(self.parts or ())], [()])
            self._laid = found.rows, found.words
        return self._laid

    @property
    def run(self) -> Callable[[], object]:
        """What runs it."""
        if self._run is None:
            self._run = partial(library.load().handle.gt_run, *self._arguments())
        return self._run

    def _arguments(self) -> tuple[_Rows, ctypes.c_int64]:
        rows = _Rows(self.rows.__array_interface__["data"][0])
        rows.kept = self._memory, self._kept, self.operands
        return rows, ctypes.c_int64(len(self.rows))

    def __call__(self) -> None:
        self.run()

    def together(self) -> None:
        """Run independent steps, as many at once as there are threads."""
        library.load().handle.gt_run_together(*self._arguments())

    @staticmethod
    def joined(calls: Iterable[Call]) -> Call:
        """Several as one."""
        held = tuple(calls)
        if all(call.parts is not None for call in held):
            return Call((part for call in held for part in call.parts or ()), held)
        rows = np.concatenate([call.rows for call in held])
        return Call.of(rows, rows, held)


@dataclass(frozen=True)
class Layout:
    """`struct name` of C: pointers, then sizes (64 bits), then numbers (double), in this order.

    Each is named once, in one string.  Every field is a word of eight bytes.
    """

    name: str
    pointers: str
    sizes: str
    numbers: str = ""

    @cached_property
    def names(self) -> dict[str, int]:
        """All fields in order, by number."""
        return {n: i for i, n in enumerate(f"{self.pointers} {self.sizes} {self.numbers}".split())}

    @cached_property
    def count(self) -> int:
        """The number of pointers."""
        return len(self.pointers.split())

    @cached_property
    def packed(self) -> struct.Struct:
        """The struct: its words as bytes."""
        sizes, numbers = len(self.sizes.split()), len(self.numbers.split())
        return struct.Struct(f"={self.count}Q{sizes}q{numbers}d")

    @cached_property
    def words(self) -> type[ctypes.Structure]:
        """The struct: addresses and numbers."""
        kinds = (
            (self.pointers, ctypes.c_void_p),
            (self.sizes, ctypes.c_int64),
            (self.numbers, ctypes.c_double),
        )
        fields = [(field, kind) for names, kind in kinds for field in names.split()]
        return type(self.name, (ctypes.Structure,), {"_fields_": fields})


@dataclass(frozen=True)
class Signature(Layout):
    """The signature of a kernel by its name: the layout of its words, taken by address.

    Some pointers are to `tables` of words, 64 bits each, with pointers among them.
    """

    tables: tuple[str, ...] = ()

    def address(self, instructions: str | None = None) -> Any:
        """The function in the library, of the instruction set in use unless one is named."""
        return getattr(library.load().handle, f"gt_{self.name}_{instructions or library.used()}")

    @cached_property
    def _kernels(self) -> dict[str, int]:
        """The addresses of the functions by instruction set, once they were asked for."""
        return {}

    def _kernel(self) -> int:
        used = library.used()
        if used not in self._kernels:
            found = ctypes.cast(self.address(used), ctypes.c_void_p).value
            assert found is not None  # noqa: S101 - the library has it
            self._kernels[used] = found
        return self._kernels[used]

    def bind(self, **values: Array | float | None) -> Call:
        """A call of fixed words: pointers are contiguous arrays or None, the rest numbers.

        A double may be an array of one float, which is read each time; `slots` are all there are
        unless they are given.

        Raises:
            TypeError: a field is missing or unknown, or an array is not contiguous, or of other
                floats.
        """
        if "slots" in self.names:
            values.setdefault("slots", SLOTS)
        if self.names.keys() != values.keys():
            names = ", ".join(self.names)
            raise TypeError(f"{self.name} takes {names}; got {', '.join(values)}")
        words: list[Any] = []
        tables, read = list[tuple[int, Array]](), list[tuple[int, int]]()
        for at, name in enumerate(self.names):
            value = values[name]
            if value is None:
                value = 0
            elif isinstance(value, np.ndarray):
                address = _address(self.name, name, value)
                if at >= self.count:
                    read.append((at, address))
                    value = 0.0
                else:
                    if name in self.tables:
                        tables.append((at, value))
                    value = address
            words.append(value)
        part = Part(self._kernel(), tuple(words), self, tables, read)
        return Call([part], values)


def _address(kernel: str, name: str, array: Array) -> int:
    """The address of an array fit for a kernel."""
    if not array.flags.c_contiguous:
        raise TypeError(f"{kernel}: {name} is not contiguous")
    if array.dtype.kind == "f" and array.dtype != np.float32:
        raise TypeError(f"{kernel}: {name} is {array.dtype}, not float32")
    return int(array.__array_interface__["data"][0])


_NUMBER = struct.Struct("=QQ")  # `struct number` of C: a float, and the double that is to hold it


@cache
def _number() -> int:
    """The function for reading a number."""
    return ctypes.cast(library.load().handle.gt_number, ctypes.c_void_p).value or 0
