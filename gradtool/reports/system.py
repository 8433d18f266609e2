"""This machine: versions, devices, processors, memory."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Annotated, Any, TypedDict

from gradtool.exec import available_memory
from gradtool.text.extras import install
from gradtool.text.layout import Column
from gradtool.text.table import Table
from gradtool.text.units import format_bytes

REQUIRED = ("numpy", "scipy", "onnx", "onnx-ir", "onnx-shape-inference", "click", "rich")
ONNXRUNTIMES = ("onnxruntime", "onnxruntime-gpu")
CUPYS = ("cupy-cuda12x", "cupy-cuda13x", "cupy")


@dataclass(frozen=True)
class Fact:
    """A part of this machine."""

    name: str
    value: Annotated[str | None, "Null where it is absent."]
    note: Annotated[str, "A remark, or a remedy."] = ""

    @property
    def lacks(self) -> bool:
        """Whether it is required, and absent."""
        return self.name in REQUIRED and self.value is None


class DoctorDocument(TypedDict):
    """This machine."""

    facts: list[Fact]


def facts() -> list[Fact]:
    """The facts shown by `gradtool doctor`. Memory and devices are as they are now."""
    return [
        Fact("gradtool", _version("gradtool"), str(Path(__file__).parent.parent)),
        Fact("python", platform.python_version(), sys.executable),
        *(_required(name) for name in REQUIRED),
        _onnxruntime(),
        _native(),
        *_cuda(),
        Fact("system", f"{platform.system()} {platform.machine()}", platform.release()),
        Fact("processors", str(_processors()), f"{os.cpu_count()} in the machine"),
        _memory(),
    ]


def facts_table(found: list[Fact]) -> Table:
    """One row per fact."""
    return Table(
        columns=(Column("what"), Column("found"), Column("note")),
        rows=tuple((fact.name, fact.value or "absent", fact.note) for fact in found),
    )


def _version(*distributions: str) -> str | None:
    for name in distributions:
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return None


def _required(name: str) -> Fact:
    version = _version(name)
    note = f"needed: pip install {name}"
    if version is not None:
        note = _blas() if name == "numpy" else ""
    return Fact(name, version, note)


def _onnxruntime() -> Fact:
    version = _version(*ONNXRUNTIMES)
    note = "for --engine ort and --verify ort" if version else install("ort")
    return Fact("onnxruntime", version, note)


def _native() -> Fact:
    """The instruction set of the native kernels, or why numpy's run instead."""
    from gradtool.native import library

    return Fact("native kernels", *library.status())


def _blas() -> str:
    """The library of numpy's matrix products, and how many threads it takes."""
    import numpy as np

    with suppress(Exception):  # how numpy was built is told in more than one form
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        return f"BLAS {blas['name']} {blas['version']}, {_threads()} threads"
    return f"{_threads()} threads"


def _threads() -> str:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if os.environ.get(name):
            return f"{os.environ[name]} ({name})"
    return f"up to {_processors()}"


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _cuda() -> Iterator[Fact]:
    version = _version(*CUPYS)
    driver = _driver()
    if util.find_spec("cupy") is None:
        yield Fact("cupy", None, _advice(driver))
        return
    yield Fact("cupy", version or "of unknown origin", "")
    try:
        import cupy

        runtime = cupy.cuda.runtime
        count = runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - a broken installation is a finding
        yield Fact("cuda", None, " ".join(str(error).split())[:100])
        return
    for number in range(count):
        name = runtime.getDeviceProperties(number)["name"].decode()
        with cupy.cuda.Device(number):
            free, total = runtime.memGetInfo()
        yield Fact(f"cuda:{number}", name, f"{format_bytes(free)} free of {format_bytes(total)}")


def _driver() -> int | None:
    """The CUDA version of the driver, as in 12080 for 12.8; None if there is no driver."""
    import ctypes

    with suppress(OSError, AttributeError):
        version = ctypes.c_int()
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            return version.value
    return None


def _advice(driver: int | None) -> str:
    if driver is None:
        return f"no CUDA driver here; with one: {install('cuda12')}, or {install('cuda13')}"
    major, minor = driver // 1000, driver % 1000 // 10
    extra = "cuda13" if major >= 13 else "cuda12"
    return f"the driver takes CUDA {major}.{minor}: {install(extra)}"


def _memory() -> Fact:
    free, total = available_memory.memory()
    if free is None or total is None:
        return Fact("memory", None, "this system does not tell")
    return Fact("memory", f"{format_bytes(free)} free", f"of {format_bytes(total)}")
