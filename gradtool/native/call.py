"""The words of a call: what a kernel of the library takes, and how it is called from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from gradtool.native import library

Array = np.ndarray[Any, Any]
Call = Callable[[], None]  # what the words say, once more each time


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
    """What the kernel of a name takes: the address of its words."""

    def address(self, instructions: str | None = None) -> Any:
        """The function in the library, of the fastest instruction set unless one is named."""
        loaded = library.load()
        return getattr(loaded.handle, f"gt_{self.name}_{instructions or loaded.instructions[0]}")

    def bind(self, instructions: str | None = None, **values: Array | float | None) -> Call:
        """A call of fixed words: pointers are contiguous arrays or None, the rest numbers.

        It may be called often, and keeps its arrays alive.  A double may be an array of one
        element, which is read each time.

        Raises:
            TypeError: a field is missing or unknown, or an array is not contiguous, or of other
                floats.
        """
        names = [*self.pointers.split(), *self.sizes.split(), *self.numbers.split()]
        if set(names) != set(values):
            raise TypeError(f"{self.name} takes {', '.join(names)}; got {', '.join(values)}")
        read = {n: v for n in self.numbers.split() if isinstance(v := values[n], np.ndarray)}
        words = self.words(**dict(self._words(values | dict.fromkeys(read, 0.0))))
        words.arrays = values
        call = partial(self.address(instructions), ctypes.byref(words))
        return partial(_with_numbers, call, words, read) if read else call

    def _words(self, values: dict[str, Array | float | None]) -> Iterator[tuple[str, Any]]:
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                if not value.flags.c_contiguous:
                    raise TypeError(f"{self.name}: {name} is not contiguous")
                if value.dtype.kind == "f" and value.dtype != np.float32:
                    raise TypeError(f"{self.name}: {name} is {value.dtype}, not float32")
                yield name, value.ctypes.data
            else:
                yield name, value


def _with_numbers(call: Call, words: ctypes.Structure, read: dict[str, Array]) -> None:
    for name, array in read.items():
        setattr(words, name, float(array))
    call()
