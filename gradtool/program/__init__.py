"""The frozen, integer-numbered form of a graph for planning and running."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from gradtool.graph.specs import Spec, contiguous
from gradtool.operators.block_size import CACHE, DEVICE
from gradtool.operators.kernel_sets import Kernels

Kind = Literal[
    "parameter", "state", "constant", "host", "input", "activation", "gradient", "output"
]
Stage = Literal["forward", "backward", "recompute", "update"]


@dataclass(frozen=True, slots=True)
class View:
    """A view: an alias of another value's storage, without bytes of its own.

    `offset` and `strides` are in bytes, counted from the start of value `base`.
    """

    base: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the program. `spec` is None where the shape depends on data.

    `least` is then an array of its type and rank whose open sizes are 0, if those are known.
    `over` is the parameter or state that it replaces in the next step, where it is written over it.
    An image that lies `channels_last` has its second axis innermost, a matrix that lies `by_column`
    its first one.  The data of what is `in_file` lies in a file beside the model as kernels could
    read it, and no step changes it; where it is `mapped`, they do so.
    """

    name: str
    spec: Spec | None
    kind: Kind
    view: View | None = None
    least: Spec | None = None
    alias: int | None = None
    channels_last: bool = False
    by_column: bool = False
    in_file: bool = False
    mapped: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides of a value of known shape."""
        assert self.spec is not None  # noqa: S101 - asked only of known shapes
        if self.channels_last:
            n, c, h, w = self.spec.shape
            rows = contiguous(Spec((n, h, w, c), self.spec.dtype))
            return rows[0], rows[3], rows[1], rows[2]
        if self.by_column:
            return contiguous(Spec(self.spec.shape[::-1], self.spec.dtype))[::-1]
        return self.view.strides if self.view else contiguous(self.spec)

    @property
    def bytes(self) -> int:
        """Bytes of its own: none for a view, a data-dependent shape, or a mapped file."""
        lies_elsewhere = self.view is not None or self.alias is not None or self.mapped
        return 0 if self.spec is None or lies_elsewhere else self.spec.bytes


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call: reads `inputs`, writes `outputs` (numbers of values, None where absent).

    `op` is the operator, of `version` of its opset, with its `attributes`; `name` is that of the
    node, `source` the forward node that a gradient node came from, `stage` its part of the training
    graph.  The kernel gets arrays of `workspace` from the arena, and takes `scratch_bytes` outside
    of it; `may_inplace` and `over` are the inputs that it may write over, the latter by output.

    A step that is not `recomputable` draws at random, so that it would give something else if it
    ran again, or its sizes depend on data.  `flops` are its floating-point operations, None where
    they are not known, and `moved` the bytes that it reads and writes.  `module` is the part of the
    model that it is of, empty where nothing tells.  `is_native` says that a kernel of the native
    library runs it (`program/native.py`).  `nodes` are the names of those that run as this step,
    where there are several; `group` is the name of the one that it runs with, where a plan says so.
    """

    name: str
    op: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: Mapping[str, Any]
    stage: Stage = "forward"
    source: str = ""
    workspace: tuple[Spec, ...] = ()
    scratch_bytes: int = 0
    may_inplace: tuple[int, ...] = ()
    over: tuple[int | None, ...] = ()
    version: int = 1
    recomputable: bool = True
    flops: int | None = None
    moved: int = 0
    module: str = ""
    is_native: bool = False
    nodes: tuple[str, ...] = ()
    group: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its nodes in running order."""
        return self.nodes or (self.name,)

    @property
    def reads(self) -> Iterator[int]:
        """The numbers of the values read, absent ones left out."""
        return (i for i in self.inputs if i is not None)

    @property
    def writes(self) -> Iterator[int]:
        """The numbers of the values written, absent ones left out."""
        return (o for o in self.outputs if o is not None)

    def needing(self, workspace: tuple[Spec, ...], scratch_bytes: int) -> Step:
        """The step with other needs; quicker than `replace`.

        Args:
            workspace: the arrays of it.
            scratch_bytes: what it takes outside of the arena.
        """
        held = list(_FIELDS(self))
        held[_NEEDS : _NEEDS + 2] = workspace, scratch_bytes
        return Step(*held)


_NAMES = [each.name for each in fields(Step)]
_FIELDS, _NEEDS = attrgetter(*_NAMES), _NAMES.index("workspace")


class Signature:
    """What like steps have in common: their `kind`, operator and attributes, and how operands lie.

    They have the same native kernel, workspace and call, but for addresses.  So `bound` is the call
    of all of them, once one of them was bound (`exec/arena_views.py`), and `cost` what it takes
    (`exec/call_batching.py`).
    """

    __slots__ = ("bound", "cost", "kind")

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.bound: Any = None
        self.cost = 0


@dataclass(frozen=True)
class Program:
    """Steps in order over numbered values, with every size known but the data-dependent ones.

    Values are known by their places in `values`: `inputs`, `outputs`, `loss`, and in `gradients` by
    the names of their values.  `steps` run in order; `dims` are the sizes of symbols.  `constants`
    holds the data of values of kind `constant` and `host` (sizes, axes and other numbers that stay
    on the host); parameters are looked up by name when the program is bound.  Of a subgraph's
    inputs the first `formal` are its own, the others are captured values.  `state` maps parameters
    and state to the outputs that are their values in the next step.  Buffers take a multiple of
    `alignment` bytes.  A program `is_grouped` where a plan says which steps native kernels run as
    one (`program/fusion.py`).  Its steps have the workspaces of `kernels`.
    """

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, np.ndarray[Any, Any]]
    gradients: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    state: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    loss: int | None = None
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    formal: int = 0
    alignment: int = 64
    is_grouped: bool = False
    kernels: Kernels = "numpy"

    def __repr__(self) -> str:
        return f"Program({len(self.steps)} steps, {len(self.values)} values)"

    def aligned(self, size: int) -> int:
        """Bytes rounded up to the alignment of buffers.

        Args:
            size: in bytes.
        """
        return -(-size // self.alignment) * self.alignment

    def storage(self, value: int) -> int:
        """The number of the value whose storage a value lies in: itself unless it is a view.

        Args:
            value: its number.
        """
        return self._roots[value]

    @cached_property
    def _roots(self) -> list[int]:
        """By value, the one whose storage it lies in."""
        roots: list[int] = []
        for value, datum in enumerate(self.values):
            root, view = value, datum.view
            while view is not None:
                root, view = view.base, self.values[view.base].view
            roots.append(root)
        return roots

    @property
    def mapped(self) -> int:
        """Bytes that steps read where they lie in a file, in no arena."""
        return sum(v.spec.bytes for v in self.values if v.mapped and v.spec is not None)

    @property
    def grain(self) -> int:
        """The number of cache-sized blocks in one block (`operators/block_size.py`)."""
        return DEVICE if self.kernels == "cupy" else CACHE

    @property
    def is_native(self) -> bool:
        """Whether kernels of the native library run some of its steps."""
        return any(step.is_native for step in self.steps)

    @cached_property
    def signatures(self) -> list[Signature]:
        """By step, what like steps have in common."""
        kinds: dict[Hashable, int] = {}
        known: dict[Hashable, Signature] = {}
        found = []
        for index, step in enumerate(self.steps):
            kind = step.op, step.version, step.is_native, settings(step.attributes)
            found.append(self.signature(kinds.setdefault(kind, index), step, known))
        return found

    def signature(self, kind: int, step: Step, known: dict[Hashable, Signature]) -> Signature:
        """The signature of a step, new unless it is `known`.

        Args:
            kind: the number of the first step of its operator and attributes.
            step: one of `steps`, or such.
            known: by how operands lie, changed here.
        """
        operands = (*step.inputs, *step.outputs)
        key = kind, *[None if v is None else self._lying(v) for v in operands]
        if key not in known:
            known[key] = Signature(kind)
        return known[key]

    def _lying(self, value: int) -> Hashable:
        """The spec of a value, by identity, and how it lies; numbers on the host by themselves."""
        datum = self.values[value]
        if datum.kind == "host":
            return -value
        if datum.view is not None:
            return id(datum.spec), datum.view.strides
        if datum.channels_last or datum.by_column:
            return id(datum.spec), datum.by_column
        return id(datum.spec)

    def is_dynamic(self, step: Step) -> bool:
        """Whether a step reads or writes a value whose shape depends on data.

        Args:
            step: one of `steps`.
        """
        return any(self.values[v].spec is None for v in (*step.reads, *step.writes))

    def strides(self, value: int) -> tuple[int, ...]:
        """Bytes from an element of a value to the next one, by axis.

        Args:
            value: its number.

        Raises:
            ValueError: its shape depends on data.
        """
        datum = self.values[value]
        if datum.spec is None:
            raise ValueError(f"{datum.name}: its shape depends on data")
        return datum.strides


def settings(attributes: Mapping[str, Any]) -> Hashable:
    """Attributes to be compared: by their identity if one is an array, or has a list in it."""
    found = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items())
    try:
        hash(found)
    except TypeError:
        return id(attributes)
    return found


def unpriced(program: Program) -> Program:
    """A program whose steps have neither operations nor bytes that they move."""
    return replace(
        program, steps=tuple(replace(step, flops=None, moved=0) for step in program.steps)
    )
