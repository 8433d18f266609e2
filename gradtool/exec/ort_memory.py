"""The memory that native code takes for a while: growth of this process, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass
from pathlib import Path

from gradtool.exec.process_memory import of_files, status

CLEAR = Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): sets the high-water mark of the resident set to what it is now


@dataclass(frozen=True)
class Start:
    """Start of a measurement: bytes resident, and the ones of them that mirror files."""

    resident: int
    of_files: int


def begin() -> Start | None:
    """Return freed memory to the system and reset the high-water mark; None where that can't be."""
    if not CLEAR.exists():
        return None
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        CLEAR.write_text(RESET_PEAK)
        now = status()
    except OSError:
        return None
    return Start(now["VmRSS"], of_files(now)) if {"VmHWM", "VmRSS"} <= now.keys() else None


def growth(start: Start | None) -> int | None:
    """Growth of the resident high-water mark since `start`, in bytes.

    Pages of files do not count: code that ran for the first time, weights read beside the model.
    """
    if start is None:
        return None
    now = status()
    files = max(of_files(now) - start.of_files, 0)
    return max(now["VmHWM"] - start.resident - files, 0)
