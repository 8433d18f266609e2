"""A watch over mapped files: reads behind an end that somebody moved give zeros, and are told.

Without it the system ends a process that reads there (SIGBUS); see `native/base/mapping.c`.
"""

from __future__ import annotations

import ctypes

from gradtool.native import library


def watch(address: int, size: int) -> int:
    """The number of a watch over `size` mapped bytes; negative where there can be no other."""
    found = library.load().handle.gt_watch
    found.restype = ctypes.c_int64
    return int(found(ctypes.c_void_p(address), ctypes.c_int64(size)))


def is_lost(number: int) -> bool:
    """Whether a read of the bytes of a watch has failed."""
    found = library.load().handle.gt_is_lost
    found.restype = ctypes.c_int64
    return bool(found(ctypes.c_int64(number)))


def unwatch(number: int) -> None:
    """End a watch, before its bytes are unmapped."""
    library.load().handle.gt_unwatch(ctypes.c_int64(number))
