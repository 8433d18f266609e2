"""The results of planning: an order, and an address for every byte of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gradtool.graph.specs import Spec
from gradtool.program import Program, Step

Region = Literal[
    "parameters",
    "state",
    "constants",
    "inputs",
    "activations",
    "backward temporaries",
    "gradients",
    "outputs",
    "workspace",
]
ALWAYS_LIVE: tuple[Region, ...] = ("parameters", "state", "constants", "inputs")
TEMPORARIES: Region = "backward temporaries"


@dataclass(frozen=True, slots=True)
class Span:
    """`bytes` of a `region` from step `first` to step `last`, both included."""

    region: Region
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """`bytes` of the arena from `offset`, held from step `first` to step `last`, both included.

    `values` are the values that lie in it, one after the other where operators write in place; it
    has the `name` and `region` of the one that does at the peak step, which is number `called` of
    them (`planning/storage_occupancy.py`).  A workspace holds none.  Where backward overwrites a
    forward value, it is of another region from step `turn` on: of the second of `regions`, before
    of the first.  Always-live buffers have `first = 0` and `last = len(steps) - 1`.
    """

    name: str
    region: Region
    bytes: int
    offset: int
    first: int
    last: int
    values: tuple[int, ...] = ()
    called: int = 0
    turn: int | None = None
    regions: tuple[Region, ...] = ()

    def moved(self, offset: int) -> Buffer:
        """The buffer at another offset; quicker than `replace`.

        Args:
            offset: where it begins in the arena, in bytes.

        Returns:
            The buffer there.
        """
        lasting = (self.first, self.last, self.values)
        own = (self.called, self.turn, self.regions)
        return Buffer(self.name, self.region, self.bytes, offset, *lasting, *own)

    @property
    def spans(self) -> Iterator[Span]:
        """The regions that it is of, from when to when."""
        if self.turn is None:
            yield Span(self.region, self.bytes, self.first, self.last)
        else:
            yield Span(self.regions[0], self.bytes, self.first, self.turn - 1)
            yield Span(self.regions[1], self.bytes, self.turn, self.last)

    @property
    def value(self) -> int | None:
        """The number of the value that it is called by; None of a workspace."""
        return self.values[self.called] if self.values else None


@dataclass(frozen=True)
class Plan:
    """A step order with arena offsets. All sizes in bytes.

    Attributes:
        name: that of the graph or of the strategy.
        program: the steps, and the sizes (`program.dims`) that they were planned for.
        buffers: where values lie in the arena, and from which step to which.
        peak: the size of the arena that `run` allocates.
        peak_live: the most that is live at once, a lower bound of `peak` for this order.
        scratch: the largest temporary that a kernel in the simple style takes outside the arena,
            also counted by `total`.
        peak_step: the number of the step at which `peak_live` is.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        plan = gt.plan(training)
        plan.peak, plan.total  # bytes
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

    def _repr_html_(self) -> str:
        from gradtool.text.table import facts
        from gradtool.text.units import format_bytes

        sizes = {"peak": self.peak, "load": self.peak_live, "outside": self.scratch}
        sizes |= {"mapped": self.mapped} if self.mapped else {}
        found = {name: format_bytes(size) for name, size in sizes.items()}
        dims = ", ".join(f"{name}={size}" for name, size in sorted(self.program.dims.items()))
        found |= {"steps": str(len(self.program.steps))} | ({"sizes": dims} if dims else {})
        return facts(f"plan {self.name}", found)

    @property
    def total(self) -> int:
        """Planned bytes of a step: the arena and the additions of adapted kernels."""
        return self.peak + self.scratch

    @property
    def mapped(self) -> int:
        """Bytes of weights read where they lie in the model's data file, beside `total`."""
        return self.program.mapped

    @property
    def beside_given(self) -> int:
        """Bytes of `total` beside weights, state and inputs, which are there before a step."""
        return self.total - sum(b.bytes for b in self.buffers if b.region in ALWAYS_LIVE)

    @cached_property
    def makers(self) -> Mapping[int, Step]:
        """By the number of a value, its producer."""
        return {value: step for step in self.program.steps for value in step.writes}

    def maker(self, buffer: Buffer) -> Step | None:
        """The producer of the value that a buffer is called by; None if there is none.

        Args:
            buffer: one of `buffers`; the step of a workspace is the one that takes it.
        """
        if buffer.value is not None:
            return self.makers.get(buffer.value)
        return self.program.steps[buffer.first] if buffer.region == "workspace" else None

    def spec(self, buffer: Buffer) -> Spec | None:
        """The shape and type of the value that a buffer is called by; None of a workspace.

        Args:
            buffer: one of `buffers`.
        """
        return None if buffer.value is None else self.program.values[buffer.value].spec

    def also(self, buffer: Buffer) -> tuple[int, ...]:
        """The other values of a buffer, before or after the one it is called by.

        Args:
            buffer: one of `buffers`.
        """
        return tuple(v for v in buffer.values if v != buffer.value)

    def live(self, step: int) -> tuple[Buffer, ...]:
        """The buffers held while a step runs.

        Args:
            step: its number.
        """
        return tuple(b for b in self.buffers if b.first <= step <= b.last)

    def regions(self, step: int) -> dict[Region, int]:
        """Bytes live at a step, by region, in the order of first appearance.

        Args:
            step: its number.
        """
        sizes: dict[Region, int] = {}
        for span in self.spans:
            if span.first <= step <= span.last:
                sizes[span.region] = sizes.get(span.region, 0) + span.bytes
        return sizes

    @property
    def spans(self) -> Iterator[Span]:
        """The regions of all buffers, from when to when."""
        for buffer in self.buffers:
            yield from buffer.spans
