"""The words of a call: the arguments of a kernel of the library, and its call from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from gradtool.native import SLOTS, library

Array = np.ndarray[Any, Any]


class _Step(ctypes.Structure):
    """`struct step` of C: a kernel and its words."""

    _fields_ = (("kernel", ctypes.c_void_p), ("words", ctypes.c_void_p))


class _Number(ctypes.Structure):
    """`struct number` of C: a float, and the double that is to hold it."""

    _fields_ = (("read", ctypes.c_void_p), ("to", ctypes.c_void_p))


class Call:
    """Kernels with their words, one after the other: one call of C runs them, as often as asked.

    It keeps the targets of pointers in the words alive; `operands` are arrays to keep beside.
    """

    __slots__ = ("_kept", "operands", "run", "steps")

    def __init__(self, steps: Iterable[tuple[int, ctypes.Structure]], kept: object = ()) -> None:
        """`steps` are addresses of functions in the library, each with the words it is given."""
        self.steps = tuple(steps)
        self._kept = kept
        self.operands: object = ()
        table = [_Step(kernel, ctypes.addressof(words)) for kernel, words in self.steps]
        count = len(table)
        self.run = partial(
            library.load().handle.gt_run, (_Step * count)(*table), ctypes.c_int64(count)
        )

    def __call__(self) -> None:
        self.run()

    def together(self) -> None:
        """Run independent steps, as many at once as there are threads."""
        library.load().handle.gt_run_together(*self.run.args)

    @staticmethod
    def joined(calls: Iterable[Call]) -> Call:
        """Several as one."""
        held = tuple(calls)
        return Call((step for call in held for step in call.steps), held)


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
    """The signature of a kernel by its name: the layout of its words, taken by address."""

    def address(self, instructions: str | None = None) -> Any:
        """The function in the library, of the instruction set in use unless one is named."""
        return getattr(library.load().handle, f"gt_{self.name}_{instructions or library.used()}")

    @cached_property
    def _names(self) -> dict[str, None]:
        """All fields, in order."""
        return dict.fromkeys(f"{self.pointers} {self.sizes} {self.numbers}".split())

    @cached_property
    def _reads(self) -> list[str]:
        return self.numbers.split()

    def _kernel(self) -> int:
        found = ctypes.cast(self.address(), ctypes.c_void_p).value
        assert found is not None  # noqa: S101 - the library has it
        return found

    def bind(self, **values: Array | float | None) -> Call:
        """A call of fixed words: pointers are contiguous arrays or None, the rest numbers.

        A double may be an array of one float, which is read each time; `slots` are all there are
        unless they are given.

        Raises:
            TypeError: a field is missing or unknown, or an array is not contiguous, or of other
                floats.
        """
        if "slots" in self._names:
            values.setdefault("slots", SLOTS)
        if self._names.keys() != values.keys():
            names = ", ".join(self._names)
            raise TypeError(f"{self.name} takes {names}; got {', '.join(values)}")
        read = {n: v for n in self._reads if isinstance(v := values[n], np.ndarray)}
        words = self.words(**dict(self._words(values | dict.fromkeys(read, 0.0))))
        kernel = self._kernel()
        numbers = [
            (_number(), _Number(_address(self.name, n, array), _field(words, n)))
            for n, array in read.items()
        ]
        return Call([*numbers, (kernel, words)], values)

    def _words(self, values: dict[str, Array | float | None]) -> Iterator[tuple[str, Any]]:
        for name, value in values.items():
            yield name, _address(self.name, name, value) if isinstance(value, np.ndarray) else value


def _address(kernel: str, name: str, array: Array) -> int:
    """The address of an array fit for a kernel."""
    if not array.flags.c_contiguous:
        raise TypeError(f"{kernel}: {name} is not contiguous")
    if array.dtype.kind == "f" and array.dtype != np.float32:
        raise TypeError(f"{kernel}: {name} is {array.dtype}, not float32")
    return int(array.__array_interface__["data"][0])


def _number() -> int:
    """The function for reading a number."""
    return ctypes.cast(library.load().handle.gt_number, ctypes.c_void_p).value or 0


def _field(words: ctypes.Structure, name: str) -> int:
    """The address of a field."""
    return ctypes.addressof(words) + int(getattr(type(words), name).offset)
