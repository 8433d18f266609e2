"""The options of a step that runs: its kernels, its inputs, its device, and how it is measured."""
# ruff: noqa: RUF009 - `option` makes a field

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from gradtool.arguments import Many, Seed
from gradtool.graph.limits import DEFAULT
from gradtool.operators.kernel_sets import Asked
from gradtool.workloads.options import keyword, option, require

_DONE, _DEVICE, _DATA = "What is done", "Device", "Data"


@dataclass(frozen=True)
class KernelOptions:
    """The kernels that a step is planned for; in Python one argument, of `KERNELS`."""

    kernels: str = option(
        "choice", "auto", "The kernels that compute and are planned for: numpy's, the native "
        "library's where they fit, or CuPy's; none counts no workspace, for other runtimes.  auto: "
        "on the CPU the library if it loads (as with --exact-conv), else numpy; on CUDA CuPy; "
        "none for a file with --portable.",
        choices=("auto", "numpy", "native", "cupy", "none"), group=_DEVICE)  # fmt: skip
    exact_conv: bool = option(
        "flag", False, "Convolutions of native kernels are sums of products: none is Winograd's.",
        needs="kernels=native", group=_DEVICE)  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """The options of `gradtool.run`, whose docstring describes each.

    Raises:
        UsageError: a number is out of bounds, or two options cannot be combined.
    """

    inputs: Mapping[str, Any] | str | os.PathLike[str] = option(
        "path", "random", "Where the inputs are: a .npz file, a folder of .npy files, or random.",
        metavar="NPZ|DIR|random", group=_DATA,
        doc="arrays by name, a file or folder that holds them, or `random`; one with the name of "
            "an initializer (a parameter, state) takes its place; gradient buffers not given are "
            "zero.")  # fmt: skip
    _: KW_ONLY
    seed: Seed = option(
        "whole", 0, "The seed of random inputs.", least=0, group=_DATA,
        doc="of what is drawn at random.")  # fmt: skip
    device: str = option(
        "text", "cpu", "Where to run.", metavar="auto|cpu|cuda[:N]", group=_DEVICE,
        doc="`cpu`, `cuda`, `cuda:N` or `auto`.")  # fmt: skip
    engine: Literal["arena", "ort"] = option(
        "choice", "arena", "Our executor, or stock onnxruntime.", choices=("arena", "ort"),
        group=_DEVICE, doc="`arena`, our executor, or `ort`, stock onnxruntime.")  # fmt: skip
    repeat: Many = option(
        "whole", 1, "Steps to run; the time is their median.  --profile, --trace and --html "
        "time at least 5, once warm.", least=1, metavar="N", group=_DONE,
        doc="how many times the step runs; `seconds` is the median.")  # fmt: skip
    measure: bool = option(
        "flag", False, "Measure the peak against the plan, in onnxruntime also what is allocated "
        "at once.", group=_DONE, doc="measure the memory, in bytes.")  # fmt: skip
    check_nan: bool = option(
        "flag", False, "Name the first node whose result has a NaN.", group=_DONE,
        needs="engine=arena", doc="end at the first node with a NaN.")  # fmt: skip
    check_arena: bool = option(
        "flag", False, "Overwrite every buffer when it dies; gradients must keep their bits.",
        group=_DONE, needs="engine=arena",
        doc="check that no kernel writes outside of its place.")  # fmt: skip
    fetch: Sequence[str] = option(
        "names", (), "Compute these values only, interior ones too; no gradients if none are among "
        "them.", metavar="GLOB|@FILE", group=_DONE,
        doc="names or globs of any values: those alone are computed and returned.")  # fmt: skip
    max_turns: int | None = option(
        "whole", None, "Stop a step after N turns of its loops.", least=1, metavar="N",
        shown=str(DEFAULT.turns), group=_DONE, needs="engine=arena",
        doc="the most turns of loops; docs/limits.md has the default.")  # fmt: skip
    max_dynamic: int | None = option(
        "bytes", None, "Stop before values whose sizes depend on data take more.", metavar="SIZE",
        shown="512MiB, or what the step is planned to take", group=_DONE, needs="engine=arena",
        doc="the most bytes of values whose sizes depend on data; see there.")  # fmt: skip
    kernels: Asked = keyword(
        "auto", "`numpy`; `native`: the library computes what it can; `exact`: without Winograd's "
        "convolutions; `auto`: `exact` if the library loads (docs/running.md).")  # fmt: skip
    copy: bool = keyword(
        True, "results are copies; False: views of the arena, which lives as long as one of them."
    )

    def __post_init__(self) -> None:
        require(self)
