"""Devices: where the arena lies, and the array library that works on it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gradtool.errors import DeviceError, NoRoom, UsageError
from gradtool.exec import available_memory
from gradtool.exec.array_interop import as_numpy, put
from gradtool.exec.strided import OnDevice
from gradtool.text.extras import install

_APART = itertools.count(1)  # bytes before an array where its memory is said to begin

INSTALL_CUPY = f"install the one that fits the driver: {install('cuda12')}, or {install('cuda13')}"


@dataclass(frozen=True)
class Device:
    """An array library `xp` (numpy or CuPy) on one device."""

    name: str
    xp: Any

    def empty(self, size: int) -> Any:
        """`size` uninitialised bytes in one allocation, aligned to 64 bytes."""
        if self.xp is np:
            available_memory.require(size, "an arena")
        try:
            raw = self.xp.empty(size + 64, self.xp.uint8)
        except MemoryError as error:
            raise NoRoom(f"{self.name}: no room for an arena of {size} bytes") from error
        except Exception as error:
            if type(error).__name__ != "OutOfMemoryError":
                raise
            raise NoRoom(f"{self.name}: no room for an arena of {size} bytes") from error
        start = -self.address(raw) % 64
        return raw[start : start + size]

    def address(self, array: Any) -> int:
        """The address of the first byte of an array."""
        pointer = array.ctypes.data if self.xp is np else array.data.ptr
        return int(pointer)

    def view(
        self, arena: Any, offset: int, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]
    ) -> Any:
        """An array over bytes of the arena.

        CuPy copies what a function reads where its result begins in the same memory.  Where the
        arrays are one, a plan has seen to it that the kernel may write there: so each array on a
        device has memory of its own as far as CuPy can see, which begins at no other's address.
        """
        if self.xp is np:
            return np.ndarray(shape, dtype, buffer=arena, offset=offset, strides=strides)
        memory, start = self.xp.cuda, self.address(arena) + offset
        before = next(_APART)
        size = arena.nbytes - offset + before
        owned = memory.UnownedMemory(start - before, size, arena, arena.device.id)
        pointer = memory.MemoryPointer(owned, before)
        return self.xp.ndarray(shape, dtype, memptr=pointer, strides=strides)

    def computes(self, held: Any) -> bool:
        """Whether the library has arithmetic for the type of an array, or of arrays in a sequence.

        CuPy has none for text, nor for the floats and integers of ONNX that numpy itself lacks,
        but for bfloat16.
        """
        if held is None or self.xp is np:
            return True
        if isinstance(held, (list, tuple)):
            return all(map(self.computes, held))
        dtype = np.dtype(held.dtype)
        return dtype.name == "bfloat16" or (dtype.kind != "O" and bool(dtype.isbuiltin == 1))

    def computable(self, array: Any) -> Any:
        """An array as some library has arithmetic for it: where it lies, or copied to the host."""
        return array if self.computes(array) else self.to_host(array)

    def to_host(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy of an array as numpy's; of the arrays of a sequence."""
        if array is None or isinstance(array, list):
            return None if array is None else [self.to_host(item) for item in array]  # type: ignore[return-value]
        if self.xp is np or isinstance(array, np.ndarray):
            return np.array(array)
        bits = array if self.computes(array) else array.view(f"u{array.dtype.itemsize}")
        return np.asarray(self.xp.asnumpy(bits)).view(array.dtype)

    def of_host(self, array: Any) -> Any:
        """A numpy array as one of this device, if it has the type; of the arrays of a sequence."""
        if isinstance(array, list):
            return [self.of_host(item) for item in array]
        moves = isinstance(array, np.ndarray) and self.computes(array)
        return self.xp.asarray(array) if moves else array

    def from_host(self, target: Any, source: np.ndarray[Any, Any]) -> None:
        """Copy an array into one of this device, a sparse one densely."""
        if self.xp is np:
            put(target, source)
        elif not isinstance(source, np.ndarray) and isinstance(source, self.xp.ndarray):
            self.xp.copyto(target, source)
        elif target.size:
            target.set(np.asarray(as_numpy(source), target.dtype, order="C"))

    def synchronize(self) -> None:
        """Wait until everything launched so far is done."""
        if self.xp is not np:
            self.xp.cuda.Device().synchronize()


def open_device(name: str) -> Device:
    """The device called `auto`, `cpu`, `cuda` or `cuda:N`.

    Raises:
        DeviceError: CuPy or the device is missing; the message says what to install.
    """
    if name == "cpu":
        return Device("cpu", np)
    if name == "auto":
        try:
            return open_device("cuda")
        except DeviceError:
            return Device("cpu", np)
    kind, _, number = name.partition(":")
    if kind != "cuda" or (number and not number.isdigit()):
        raise UsageError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N")
    return _open_cuda(int(number or 0))


def _open_cuda(number: int) -> Device:
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"cuda:{number}: CuPy is not installed; {INSTALL_CUPY}") from error
    if not cupy.cuda.is_available():
        raise DeviceError(f"cuda:{number}: no CUDA device is visible; use --device cpu")
    if number >= cupy.cuda.runtime.getDeviceCount():
        count = cupy.cuda.runtime.getDeviceCount()
        raise DeviceError(f"cuda:{number}: there are {count} CUDA devices, counted from 0")
    cupy.cuda.Device(number).use()
    return Device(f"cuda:{number}", _on_device(cupy))


@cache
def _on_device(cupy: Any) -> OnDevice:
    """The library as kernels see it: one object, so that its compiled code is found again."""
    return OnDevice(cupy)
