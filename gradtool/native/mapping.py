"""A watch over mapped files: reads behind an end that somebody moved give zeros, and are told.

Without it the system ends a process that reads there (SIGBUS); see `native/base/mapping.c`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from gradtool.native import library


@dataclass(frozen=True)
class Watch:
    """A watch over mapped bytes, by its number in the library that keeps it."""

    handle: ctypes.CDLL
    number: int

    def is_lost(self) -> bool:
        """Whether a read of the bytes has failed."""
        found = self.handle.gt_is_lost
        found.restype = ctypes.c_int64
        return bool(found(ctypes.c_int64(self.number)))

    def end(self) -> None:
        """End the watch, before its bytes are unmapped."""
        self.handle.gt_unwatch(ctypes.c_int64(self.number))


def watch(address: int, size: int) -> Watch | None:
    """A watch over `size` mapped bytes; None where there can be no other."""
    handle = library.load().handle
    found = handle.gt_watch
    found.restype = ctypes.c_int64
    number = int(found(ctypes.c_void_p(address), ctypes.c_int64(size)))
    return None if number < 0 else Watch(handle, number)
