"""The program of a model at other sizes, from that at sizes nearby: decisions are kept.

Where every size is a polynomial of symbols, none becomes 0 or 1 or ceases to be, and those that a
node touches are equal where they were, the same nodes are steps, the same values views, and the
same axes broadcast: sizes that broadcast or have to agree are equal, 1, or refused.  Then shapes
are evaluated in place of inferred, and only what follows from their numbers is asked again:
constants, windows, workspaces, costs, native kernels, and the rules that keep kernels inside of
arrays.  Where more would change there is no answer: the model is flattened as it is.

Source: guards of torch.compile's dynamic shapes (0 and 1 are special, equalities are guarded).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import onnx_ir as ir

from gradtool.graph.injection import provided
from gradtool.graph.limits import MOST_ELEMENTS
from gradtool.graph.predicates import NO_DATA
from gradtool.graph.randomness import may_draw
from gradtool.graph.specs import Spec, is_contiguous, spec_of
from gradtool.io import array, rules
from gradtool.operators.block_size import CACHE, DEVICE, grain
from gradtool.operators.kernel_sets import Kernels
from gradtool.program import Program, Step, Value, View
from gradtool.program.declared import Call, Declarations, operand
from gradtool.program.flatten import Flat, Recipe
from gradtool.program.kinds import KEPT_BYTES
from gradtool.program.native import made_for
from gradtool.shapes.folding import FOLDED_BYTES, SHARE

Dims = Mapping[str, int]
Sizes = dict[str, int]  # by expression
Specs = dict[ir.Value, Spec | None]

_POLYNOMIAL = re.compile(r"(?:[A-Za-z_]\w*(?![\w(])|\d+|[ +*()-])+")
_MOST = FOLDED_BYTES // SHARE  # bytes of a constant


class Resizing:
    """The guards of a program, and the program at other sizes of its symbols."""

    def __init__(
        self, opened: ir.Model, flat: Flat, program: Program, dims: Dims, kernels: Kernels
    ) -> None:
        """Take a flattening over, of a model that is `opened` beside; use `of`."""
        self._flat, self._program, self._kernels = flat, program, kernels
        self._dims = dict(dims)
        declared = {v.name: v for v in _values(opened.graph)}
        self._depending = [
            node
            for node in flat.graph
            if any(
                v.const_value is not None and v.name in declared
                and declared[v.name].const_value is None
                for v in node.outputs
            )
        ]  # fmt: skip
        nodes = [*self._depending, *(recipe.node for recipe in flat.recipes)]
        touched = {v for node in nodes for v in (*node.inputs, *node.outputs) if v is not None}
        touched = {v for v in touched.union(flat.numbers) if v.name}
        known = {v: declared[v.name].shape for v in touched if v.name in declared}
        self.is_whole = touched == set(known) and None not in known.values()
        self._open = {v: s.dims for v, s in known.items() if s is not None and not s.is_static()}
        self._dims_of = {
            d.value or "": d
            for dims in self._open.values()
            for d in dims
            if isinstance(d, ir.SymbolicDim)
        }
        moving = {*self._open, *(v for node in self._depending for v in node.outputs)}
        self._nodes = [n for n in nodes if not moving.isdisjoint((*n.inputs, *n.outputs))]
        self._recipes = [r for r in flat.recipes if not moving.isdisjoint(
            (*r.node.inputs, *r.node.outputs))]  # fmt: skip
        self._patterns = list(dict.fromkeys(map(self._pattern, self._recipes)))
        self._numbers = {value: number for value, number in flat.numbers.items() if value in moving}
        self._before = self._sizes(dims) or {}

    @classmethod
    def of(
        cls, opened: ir.Model, flat: Flat, program: Program, dims: Dims, kernels: Kernels
    ) -> Self | None:
        """The guards of a program, None unless they reproduce it at its own sizes."""
        bodies = (a for step in program.steps for a in step.attributes.values())
        if any(v.spec is None for v in program.values) or any(
            isinstance(body, Program) for body in bodies
        ):
            return None
        made = cls(opened, flat, program, dims, kernels)
        again = made._at(dims) if made.is_whole else None
        return made if again is not None and is_same(again, program) else None

    @property
    def model(self) -> ir.Model:
        """The model, at the sizes that were asked for last."""
        return self._flat.model

    def at(self, dims: Dims) -> Program | None:
        """The program at other sizes; None where these decide otherwise.

        Raises:
            ModelError: a node does not fit these sizes.
        """
        found = self._at(dims) if dims.keys() == self._dims.keys() else None
        return None if found is None else made_for(self._kernels, found)

    def _at(self, dims: Dims) -> Program | None:
        """The same before it is made for kernels."""
        sizes = self._sizes(dims)
        if sizes is None or not all(self._is_alike(pattern, sizes) for pattern in self._patterns):
            return None
        specs = self._resized(sizes)
        constants = self._constants(specs)
        if constants is None:
            return None
        rules.check(self._flat.model, nodes=self._nodes)
        values = list(self._program.values)
        for value, number in self._numbers.items():
            if value in specs:
                values[number] = replace(values[number], spec=specs[value])
        steps = list(self._program.steps)
        declarations = Declarations()
        with grain(DEVICE if self._kernels == "cupy" else CACHE):
            for recipe in self._recipes:
                if recipe.step is None:
                    if not self._moved(recipe, values, constants, specs):
                        return None
                else:
                    old = steps[recipe.step]
                    call = self._call(recipe, old, values, constants, specs)
                    steps[recipe.step] = _declared(old, declarations, call)
        return replace(
            self._program, values=tuple(values), steps=tuple(steps),
            constants=MappingProxyType(constants), dims=MappingProxyType(dict(dims)),
        )  # fmt: skip

    # ----------------------------------------------------------------------- sizes

    def _sizes(self, dims: Dims) -> Sizes | None:
        """The sizes that expressions have; None if one of them is no polynomial, or is negative."""
        found: Sizes = {}
        for text, dim in self._dims_of.items():
            size = dim.evaluate(dims) if _POLYNOMIAL.fullmatch(text) else None
            if not isinstance(size, int) or size < 0:
                return None
            found[text] = size
        return found

    def _pattern(self, recipe: Recipe) -> tuple[int | str, ...]:
        """The sizes touched by a node, without those of numbers on the host."""
        host = recipe.kernel.host
        read = [v for slot, v in enumerate(recipe.node.inputs) if slot not in host]
        touched = (v for v in (*read, *recipe.node.outputs) if v is not None and v.shape)
        dims = (d for v in touched for d in self._open.get(v) or v.shape.dims)  # type: ignore[union-attr]
        texts = (d if isinstance(d, int) else d.value or "" for d in dims)
        return tuple(sorted({0, 1, *texts}, key=str))

    def _is_alike(self, pattern: tuple[int | str, ...], sizes: Sizes) -> bool:
        """Whether equal sizes stay equal, and 0 and 1 stay as they are."""
        before = [d if isinstance(d, int) else self._before[d] for d in pattern]
        after = [d if isinstance(d, int) else sizes[d] for d in pattern]
        pairs = set(zip(before, after, strict=True))
        return len(pairs) == len(set(before)) and all(
            old == new for old, new in pairs if old <= 1 or new <= 1
        )

    def _resized(self, sizes: Sizes) -> Specs:
        """Set the shapes of values, one object for all equal shapes."""
        shapes: dict[tuple[Any, ...], tuple[ir.Shape, dict[Any, Spec]]] = {}
        specs: Specs = {}
        for value, dims in self._open.items():
            found = shapes.get(dims)
            if found is None:
                shape = tuple(d if isinstance(d, int) else sizes[d.value or ""] for d in dims)
                found = shapes[dims] = ir.Shape(shape, frozen=True), {}
            value.shape, by_type = found
            dtype = value.dtype
            if dtype not in by_type and dtype is not None:
                by_type[dtype] = Spec(value.shape.numpy(), np.dtype(dtype.numpy()))
            specs[value] = by_type.get(dtype)
        return specs

    def _constants(self, specs: Specs) -> dict[int, np.ndarray[Any, Any]] | None:
        """Constants known before a run; None if somewhere it is kept otherwise."""
        constants = dict(self._program.constants)
        for node in self._depending:
            out = [specs.get(v) or spec_of(v) for v in node.outputs]
            given = [None if v is None else _known(node, v) for v in node.inputs]
            if may_draw(node) or any(
                v is not None and a is None for v, a in zip(node.inputs, given, strict=True)
            ):
                return None
            version = self._flat.operators.of(node).version
            found = provided("evaluate")(node, version, given, out, out, _MOST)
            if found is None or found.results is None:
                return None
            for value, made in zip(node.outputs, found.results, strict=False):
                before = value.const_value
                if made is None or before is None or value.shape is None:
                    continue
                small = made.nbytes <= KEPT_BYTES, before.nbytes <= KEPT_BYTES
                is_large = made.size > MOST_ELEMENTS
                if made.shape != tuple(value.shape) or small[0] != small[1] or is_large:
                    return None
                data = np.ascontiguousarray(made, before.dtype.numpy()).reshape(made.shape)
                value.const_value = ir.Tensor(data, dtype=before.dtype, name=value.name)
                number = self._flat.numbers.get(value)
                if number in constants:
                    constants[number] = data
        return constants

    # ----------------------------------------------------------------------- nodes

    def _operands(
        self, recipe: Recipe, values: list[Value], constants: Mapping[int, Any]
    ) -> list[Any]:
        return [
            operand(values, constants, number, on_host=slot in recipe.kernel.host)
            for slot, number in enumerate(recipe.inputs)
        ]

    def _results(self, recipe: Recipe, specs: Specs) -> list[Spec | None]:
        held = self._flat.specs
        return [specs[v] if v in specs else held.get(v) for v in recipe.node.outputs]

    def _moved(
        self, recipe: Recipe, values: list[Value], constants: Mapping[int, Any], specs: Specs
    ) -> bool:
        """Move the windows of a node that only lays a value out; whether they are as before."""
        out = self._results(recipe, specs)
        base = next(iter(recipe.inputs))
        assert base is not None  # noqa: S101 - see `Flat._as_views`
        given = self._operands(recipe, values, constants)
        sized = [spec for spec in out if spec is not None]
        windows = recipe.kernel.windows(given, values[base].strides, sized, recipe.attributes)
        if windows is None or len(sized) != len(out):
            return False
        elements = _elements(given[0]), _elements(self._program.values[base].spec)
        for value, spec, window in zip(recipe.node.outputs, sized, windows, strict=True):
            number = self._flat.numbers.get(value)
            if number is None:
                continue
            before = self._program.values[number]
            assert before.spec is not None  # noqa: S101 - see `of`
            is_whole = elements[1] == _elements(before.spec)
            if is_whole != (elements[0] == _elements(spec)):
                return False
            if is_contiguous(spec, window[1]) != is_contiguous(before.spec, before.strides):
                return False
            values[number] = replace(values[number], spec=spec, view=View(base, *window))
        return True

    def _call(
        self, recipe: Recipe, step: Step, values: list[Value], constants: Mapping[int, Any],
        specs: Specs,
    ) -> Call:  # fmt: skip
        out = self._results(recipe, specs)
        wanted = [s if v is not None else None for v, s in zip(step.outputs, out, strict=True)]
        given = self._operands(recipe, values, constants)
        return Call(
            recipe.kernel, recipe.version, given, wanted, out, recipe.attributes, dynamic=False
        )


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values that a graph reads and makes itself."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _known(node: ir.Node, value: ir.Value) -> np.ndarray[Any, Any] | None:
    """The known value of an operand; for an operator of shapes alone an array without data."""
    if node.op_type in NO_DATA and not node.domain:
        if value.shape is None or value.dtype is None:
            return None
        return np.broadcast_to(np.zeros((), value.dtype.numpy()), value.shape.numpy())
    return None if value.const_value is None else array(value.const_value)


def _elements(spec: Spec | None) -> int:
    return -1 if spec is None else math.prod(spec.shape)


def _declared(step: Step, declarations: Declarations, call: Call) -> Step:
    """A step with what it takes and costs in a call."""
    found = declarations.of(call)
    return replace(
        step, workspace=found.workspace, scratch_bytes=found.scratch_bytes, flops=found.flops,
        moved=found.moved,
    )  # fmt: skip


def is_same(one: Program, other: Program) -> bool:
    """Whether two programs are equal, constants by their bits."""
    same = replace(one, constants=other.constants) == other
    pairs: Iterable[tuple[Any, Any]] = ((one.constants[v], a) for v, a in other.constants.items())
    return same and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
