"""Finds, checks and loads the library of native kernels, once, when first asked."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gradtool.native import sources

SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
# Instruction sets, the fastest first, by the number the library gives.
RUNS = {"v4": ("v4", "v3"), "v3": ("v3",), "neon": ("neon",)}
NAMES = {"v4": "x86-64-v4 (AVX-512)", "v3": "x86-64-v3 (AVX2, FMA)", "neon": "aarch64 (NEON)"}


_ASKED: ContextVar[str | None] = ContextVar("gradtool.instructions", default=None)


class Unavailable(Exception):
    """Why native kernels cannot be called here, in one line."""


@dataclass(frozen=True)
class Library:
    """The loaded library and the instruction sets it may use here, the fastest first."""

    handle: ctypes.CDLL
    instructions: tuple[str, ...]


def status() -> tuple[str | None, str]:
    """The instruction set in use, or None, and a remark: the threads, or the missing part."""
    try:
        return NAMES[load().instructions[0]], f"{threads()} threads"
    except Unavailable as reason:
        return None, str(reason)


@cache
def is_available() -> bool:
    """Whether the library can be called here."""
    try:
        load()
    except Unavailable:
        return False
    return True


@cache
def load() -> Library:
    """The library.

    Raises:
        Unavailable: it was not built, is out of date, does not load, or knows no such processor.
    """
    handle = _open(_find())
    handle.gt_instructions.restype = ctypes.c_char_p
    handle.gt_threads.restype = ctypes.c_int64
    best = handle.gt_instructions().decode()
    if best not in RUNS:
        raise Unavailable("this processor lacks AVX2 and FMA (x86-64-v3): numpy's kernels run")
    handle.gt_set_threads(ctypes.c_int64(threads_asked()))
    return Library(handle, RUNS[best])


def used() -> str:
    """The instruction set of kernels that are bound now."""
    return _ASKED.get() or load().instructions[0]


@contextmanager
def using(instructions: str | None) -> Iterator[None]:
    """Bind kernels of an instruction set meanwhile; None: of the fastest."""
    before = _ASKED.set(instructions)
    try:
        yield
    finally:
        _ASKED.reset(before)


def threads() -> int:
    """The most threads of a kernel."""
    return int(load().handle.gt_threads())


def set_threads(count: int) -> None:
    """Let kernels take up to `count` threads; bits do not depend on it."""
    load().handle.gt_set_threads(ctypes.c_int64(count))


def _find() -> Path:
    system = SYSTEMS.get(sys.platform)
    if system is None:
        raise Unavailable(f"no native kernels for {sys.platform}")
    path = sources.FOLDER / f"libgradtool{sources.ENDINGS[system]}"
    if not path.exists():
        how = "build the package without GRADTOOL_PURE"
        if sources.TREE.is_dir():
            how = "pip install ziglang, then python native/build.py"
        raise Unavailable(f"built without native kernels (GRADTOOL_PURE, or no compiler): {how}")
    if sources.TREE.is_dir() and not (sources.FOLDER / sources.DIGEST).read_text().startswith(
        sources.digest(sources.TREE)
    ):
        raise Unavailable("native/ has changed since it was built: python native/build.py")
    return path


def _open(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"{path.name} does not load: {' '.join(str(error).split())}") from None


def threads_asked() -> int:
    """Threads by the environment, else one for each processor that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
