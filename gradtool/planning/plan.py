"""What planning decides: an order, and an address for every byte of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradtool.program import Program

Region = Literal[
    "parameters",
    "state",
    "constants",
    "inputs",
    "activations",
    "gradients",
    "outputs",
    "workspace",
]
ALWAYS_LIVE: tuple[Region, ...] = ("parameters", "state", "constants", "inputs")


@dataclass(frozen=True, slots=True)
class Buffer:
    """`bytes` of the arena from `offset`, held from step `first` to step `last`, both included.

    `values` are the values that live in it: one, or several where an operator writes in place.
    A workspace holds none. Always-live buffers have `first = 0` and `last = len(steps) - 1`.
    """

    name: str
    region: Region
    bytes: int
    offset: int
    first: int
    last: int
    values: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A step order with arena offsets. All sizes in bytes.

    `peak` is the size of the arena that `run` allocates. `load` is the largest number of bytes
    live at once, a lower bound of `peak` for this order. `scratch` is the largest temporary that a
    kernel in the simple style takes outside the arena, also counted by `total`.
    """

    name: str
    program: Program
    buffers: tuple[Buffer, ...]
    peak: int
    peak_live: int
    scratch: int
    peak_step: int

    def __repr__(self) -> str:
        dims = "".join(f", {name}={size}" for name, size in sorted(self.program.dims.items()))
        return f"Plan({self.name!r}, peak {self.peak} bytes, {len(self.program.steps)} steps{dims})"

    @property
    def total(self) -> int:
        """Bytes that a step is planned to take: the arena and what adapted kernels add to it."""
        return self.peak + self.scratch

    def live(self, step: int) -> tuple[Buffer, ...]:
        """The buffers held while `step` runs."""
        return tuple(b for b in self.buffers if b.first <= step <= b.last)

    def regions(self, step: int) -> dict[Region, int]:
        """Bytes live at `step`, by region, in the order of first appearance."""
        sizes: dict[Region, int] = {}
        for buffer in self.live(step):
            sizes[buffer.region] = sizes.get(buffer.region, 0) + buffer.bytes
        return sizes
