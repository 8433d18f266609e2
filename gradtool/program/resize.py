"""The program of a model at other sizes, from that at sizes nearby: decisions are kept.

Where sizes are guarded (`program/size_guards.py`), the same nodes are steps, the same values views,
and the same axes broadcast: sizes that broadcast or have to agree are equal, 1, or refused.  So a
program that is made for kernels is followed as it is, and only what depends on numbers is asked
again, once for all steps that are alike: windows, workspaces, native kernels, what fusion weighs.
Where more would change there is no answer: the model is flattened as it is.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import onnx_ir as ir

from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec, is_contiguous
from gradtool.operators.block_size import CACHE, DEVICE, grain
from gradtool.operators.kernel_sets import LIBRARY, NONE, Kernels
from gradtool.ops import native
from gradtool.program import Program, Signature, Value, View, settings, unpriced
from gradtool.program.declared import Call, Declarations, operand
from gradtool.program.flatten import Flat, Recipe
from gradtool.program.fusion import Waiting
from gradtool.program.native import lie_in_rows, made_for, needed
from gradtool.program.reserve_space import PAIRED, reserved
from gradtool.program.size_guards import Dims, SizeGuards, Specs

Constants = Mapping[int, np.ndarray[Any, Any]]


class Resized(NamedTuple):
    """A program at other sizes, and whether the same storages may be written over as before."""

    program: Program
    is_alike: bool


class _Window(NamedTuple):
    """A view of a value, whether it has all of its elements, and whether they lie in rows."""

    offset: int
    strides: tuple[int, ...]
    is_whole: bool
    in_rows: bool


class Resizing:
    """A program made for kernels, without prices, and the same at other sizes of its symbols."""

    def __init__(
        self, opened: ir.Model, flat: Flat, program: Program, dims: Dims, kernels: Kernels
    ) -> None:
        """Take a flattening over, of a model that is `opened` beside; use `of`."""
        weighed: list[Waiting] = []
        self.program = made = unpriced(made_for(kernels, program, weighed))
        self._flat, self._kernels = flat, kernels
        self._guards = guards = SizeGuards(opened, flat, dims)
        named = {value.name: number for number, value in enumerate(made.values)}
        self.is_whole = guards.is_whole and len(named) == len(made.values)
        self._numbers = {v: named[v.name] for v in guards.moving if v.name in named}
        inner = {value.name for value in program.values}
        self._reserved = [
            (v, index) for index, step in enumerate(made.steps) for v in step.writes
            if made.values[v].name not in inner
        ]  # fmt: skip
        moved = {*self._numbers.values(), *(v for v, _ in self._reserved)}
        self._steps = [
            index for index, step in enumerate(made.steps)
            if not moved.isdisjoint((*step.reads, *step.writes))
        ]  # fmt: skip
        self._take_over(program, named)
        owners = {number: value for value, number in flat.numbers.items()}
        self._weighed = [
            ([owners[v] for v in sorted(waiting) if program.values[v].bytes], owners[between], may)
            for waiting, between, may in dict.fromkeys(weighed)
        ]

    def _take_over(self, program: Program, named: Mapping[str, int]) -> None:
        """Find what may change of the made program: its views, and the kernels of its steps."""
        made = self.program
        there = [named.get(value.name) for value in program.values]
        makers = {v: i for i in self._steps for v in made.steps[i].writes}
        self._views: list[tuple[Recipe, Hashable]] = []
        self._plain: dict[int, Recipe] = {}
        for old in self._guards.recipes:
            recipe = old._replace(inputs=tuple(None if v is None else there[v] for v in old.inputs))
            numbers = (named.get(v.name or "") for v in old.node.outputs)
            maker = next((makers[v] for v in numbers if v in makers), None)
            if old.step is None:
                self._views.append((recipe, (id(old.kernel), settings(old.attributes))))
            elif maker is not None and not made.steps[maker].is_native:
                self._plain[maker] = recipe
        self._before = {
            number: _window(made.values[v.view.base], v.view.offset, v.view.strides, v.spec)
            for number, v in enumerate(made.values)
            if v.view is not None and v.spec is not None
        }
        self._compared = [
            v for step in made.steps if step.op in PAIRED for v in step.reads
            if made.values[v].view is not None
        ]  # fmt: skip
        found = {i: native.find(*split_name(made.steps[i].op), made.steps[i].version)
                 for i in self._steps}  # fmt: skip
        self._library = {
            i: kernel for i, kernel in found.items()
            if kernel is not None and self._kernels in LIBRARY
            and (made.steps[i].is_native or kernel.strided or lie_in_rows(made, made.steps[i]))
        }  # fmt: skip

    @classmethod
    def of(
        cls, opened: ir.Model, flat: Flat, program: Program, dims: Dims, kernels: Kernels
    ) -> Self | None:
        """The guards of a program, None unless they reproduce it at its own sizes."""
        bodies = (a for step in program.steps for a in step.attributes.values())
        if (
            kernels == NONE
            or any(v.spec is None for v in program.values)
            or any(isinstance(body, Program) for body in bodies)
        ):
            return None
        made = cls(opened, flat, program, dims, kernels)
        again = made.at(dims) if made.is_whole else None
        return made if again is not None and is_same(again.program, made.program) else None

    @property
    def model(self) -> ir.Model:
        """The model, at the sizes that were asked for last."""
        return self._flat.model

    def at(self, dims: Dims) -> Resized | None:
        """The program at other sizes, without prices; None where these decide otherwise.

        Raises:
            ModelError: a node does not fit these sizes.
        """
        sized = self._guards.at(dims)
        if sized is None or not self._weighs(sized.specs):
            return None
        constants = dict(self.program.constants)
        for value, data in sized.constants.items():
            if self._numbers.get(value) in constants:
                constants[self._numbers[value]] = data
        values = self._moved(sized.specs, constants)
        if values is None or not self._compares(values):
            return None
        program = replace(
            self.program, values=tuple(values), constants=MappingProxyType(constants),
            dims=MappingProxyType(dict(dims)),
        )  # fmt: skip
        found = self._needing(program, sized.specs)
        return None if found is None else Resized(found, sized.is_alike)

    # ---------------------------------------------------------------------- values

    def _moved(self, specs: Specs, constants: Constants) -> list[Value] | None:
        """The values, those of other sizes among them; None if a window becomes another one."""
        values = list(self.program.values)
        for value, number in self._numbers.items():
            if value in specs:
                values[number] = _sized(values[number], specs[value], values[number].view)
        for number, index in self._reserved:
            room = reserved(values, self.program.steps[index])
            values[number] = _sized(values[number], room, None)
        known: dict[Hashable, Sequence[_Window] | None] = {}
        for recipe, kind in self._views:
            base, out = recipe.inputs[0], self._results(recipe, specs)
            given = _operands(recipe, values, constants)
            assert base is not None  # noqa: S101 - see `Flat._as_views`
            key = kind, values[base].strides, *map(id, given), *map(id, out)
            if key not in known:
                known[key] = _windows(recipe, values[base], given, out)
            windows = known[key]
            if windows is None:
                return None
            for value, spec, window in zip(recipe.node.outputs, out, windows, strict=True):
                if value not in self._numbers:
                    continue
                own = self._numbers[value]
                if window[2:] != self._before[own][2:]:
                    return None
                view = View(base, window.offset, window.strides)
                values[own] = _sized(values[own], spec, view)
        return values

    def _weighs(self, specs: Specs) -> bool:
        """Whether fusion decides as before."""
        held = self._flat.specs

        def size(value: ir.Value) -> int:
            spec = specs[value] if value in specs else held[value]
            return 0 if spec is None else spec.bytes

        return all(
            (sum(map(size, waiting)) <= size(between)) == may
            for waiting, between, may in self._weighed
        )

    def _compares(self, values: Sequence[Value]) -> bool:
        """Whether the same operands of a kernel and its gradient are equal (`reserve_space`)."""
        pairs = {(self.program.values[v].view, values[v].view) for v in self._compared}
        return len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})

    # ----------------------------------------------------------------------- steps

    def _needing(self, program: Program, specs: Specs) -> Program | None:
        """The program whose steps have the workspaces of its sizes; None if other kernels fit."""
        steps, signatures = list(program.steps), list(self.program.signatures)
        needs: dict[int, tuple[Spec, ...] | None] = {}
        known: dict[Hashable, Signature] = {}
        declarations = Declarations(priced=False)
        with grain(DEVICE if self._kernels == "cupy" else CACHE):
            for index in self._steps:
                step, kernel = steps[index], self._library.get(index)
                signature = program.signature(signatures[index].kind, step, known)
                signatures[index] = signature
                if kernel is not None and id(signature) not in needs:
                    needs[id(signature)] = needed(program, step, kernel)
                found = needs.get(id(signature))
                if (found is not None) != step.is_native:
                    return None
                scratch = 0
                if found is None:
                    declared = declarations.of(self._call(index, program, specs))
                    found, scratch = declared.workspace, declared.scratch_bytes
                if (found, scratch) != (step.workspace, step.scratch_bytes):
                    steps[index] = step.needing(found, scratch)
        made = replace(program, steps=tuple(steps))
        vars(made)["signatures"] = signatures
        return made

    def _results(self, recipe: Recipe, specs: Specs) -> list[Spec | None]:
        held = self._flat.specs
        return [specs[v] if v in specs else held.get(v) for v in recipe.node.outputs]

    def _call(self, index: int, program: Program, specs: Specs) -> Call:
        """What a step asks of a kernel that is none of the library's."""
        step, recipe = program.steps[index], self._plain[index]
        out = self._results(recipe, specs)
        wanted = [s if v is not None else None for v, s in zip(step.outputs, out, strict=True)]
        given = _operands(recipe, program.values, program.constants)
        return Call(
            recipe.kernel, recipe.version, given, wanted, out, recipe.attributes, dynamic=False
        )


def _windows(
    recipe: Recipe, base: Value, given: Sequence[Any], out: Sequence[Spec | None]
) -> list[_Window] | None:
    """The windows of a node that only lays a value out."""
    sized = [spec for spec in out if spec is not None]
    found = recipe.kernel.windows(given, base.strides, sized, recipe.attributes)
    if found is None or len(sized) < len(out):
        return None
    return [_window(base, *window, spec) for spec, window in zip(sized, found, strict=True)]


def _window(base: Value, offset: int, strides: tuple[int, ...], spec: Spec) -> _Window:
    is_whole = _elements(base.spec) == _elements(spec)
    return _Window(offset, strides, is_whole, is_contiguous(spec, strides))


def _sized(value: Value, spec: Spec | None, view: View | None) -> Value:
    """A value of another size, quicker than by `replace`."""
    return Value(
        value.name, spec, value.kind, view, value.least, value.alias, value.channels_last,
        value.by_column, value.in_file, value.mapped,
    )  # fmt: skip


def _operands(recipe: Recipe, values: Sequence[Value], constants: Constants) -> list[Any]:
    return [
        operand(values, constants, number, on_host=slot in recipe.kernel.host)
        for slot, number in enumerate(recipe.inputs)
    ]


def _elements(spec: Spec | None) -> int:
    return -1 if spec is None else math.prod(spec.shape)


def is_same(one: Program, other: Program) -> bool:
    """Whether two programs are equal, constants by their bits."""
    same = replace(one, constants=other.constants) == other
    pairs: Iterable[tuple[Any, Any]] = ((one.constants[v], a) for v, a in other.constants.items())
    return same and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
