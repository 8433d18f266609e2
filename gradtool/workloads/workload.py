"""A training graph that is ready to be planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import onnx_ir as ir

from gradtool.operators.kernel_sets import Kernels
from gradtool.planning.arena import Arenas
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.orders.best import Ordered, best_order
from gradtool.planning.plan import Plan
from gradtool.planning.simulate import Simulator
from gradtool.program import Program
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten

OnPoint = Callable[[int, int], object]


@dataclass
class Listener:
    """Who hears how many points of a search are done, and how many there are."""

    point: OnPoint = lambda _done, _all: None


@dataclass(frozen=True)
class Workload:
    """A training graph (`model`) ready to be planned: named nodes, and a program of known sizes.

    `dims` are the sizes given to what the model leaves open; the model itself keeps that open.
    `program` is made for `kernels`, and its steps are what a plan puts in order; where they are
    groups of nodes, `of_nodes` is the program whose steps are those.  `memo` is what was found out
    about it before, by question; `listener` hears of what is going on.  `turns` are those of loops
    that this form of the graph takes again (see `loops`).  `_sized` is the model with sizes given,
    if it was made before.
    """

    model: ir.Model
    program: Program
    dims: Mapping[str, int]
    kernels: Kernels = "numpy"
    of_nodes: Program | None = None
    turns: Mapping[str, int] = field(default_factory=dict)
    memo: dict[object, object] = field(default_factory=dict, compare=False, repr=False)
    listener: Listener = field(default_factory=Listener, compare=False, repr=False)
    _sized: ir.Model | None = field(default=None, compare=False, repr=False)
    _programs: dict[tuple[tuple[str, int], ...], Program] = field(
        default_factory=dict, compare=False, repr=False
    )
    _unaligned: dict[tuple[tuple[str, int], ...], Simulator] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __repr__(self) -> str:
        return f"Workload({self.model.graph.name!r}, {self.program!r})"

    @property
    def apart(self) -> Program:
        """The program whose steps are nodes: itself, unless native kernels run some as one."""
        return self.of_nodes or self.program

    def resized(self, sizes: Mapping[str, int]) -> Program:
        """The program where some symbols have other sizes.

        Args:
            sizes: by symbol; the others stay.
        """
        dims = {**self.dims, **sizes}
        key = tuple(sorted(dims.items()))
        if key not in self._programs:
            model = sized(self.model, dims)
            self._programs[key] = flatten(model, dims=dims, kernels=self.kernels)
        return self._programs[key]

    def unaligned(self, sizes: Mapping[str, int]) -> Simulator:
        """The simulator where some symbols have other sizes, padding left out.

        Args:
            sizes: by symbol; the others stay.
        """
        key = tuple(sorted({**self.dims, **sizes}.items()))
        if key not in self._unaligned:
            self._unaligned[key] = Simulator(replace(self.resized(sizes), alignment=1))
        return self._unaligned[key]

    @cached_property
    def simulator(self) -> Simulator:
        """The simulator of the program, which tells the load of a schedule in bytes."""
        return Simulator.of(self.program)

    @cached_property
    def arenas(self) -> Arenas:
        """The sizes of arenas of schedules, in bytes, told by their orders."""
        return Arenas(self.simulator)

    @cached_property
    def nodes(self) -> Program:
        """The program with each node as a step, layouts included."""
        model = sized(self.model, self.dims) if self._sized is None else self._sized
        return flatten(model, dims=self.dims, views=False)

    @cached_property
    def ordered(self) -> Ordered:
        """The order of least peak that is found when nothing runs again."""
        return best_order(self.program)

    @cached_property
    def kept(self) -> Plan:
        """The plan that keeps everything, in the order of the file."""
        return no_recompute(self.program)


def sized(model: ir.Model, dims: Mapping[str, int]) -> ir.Model:
    """The model with sizes given to what it leaves open; itself if there are none to give."""
    return bound(model, dims) if dims else model
