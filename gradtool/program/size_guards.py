"""The sizes at which decisions taken at others hold, and the specs and constants of a model there.

Every size is a polynomial of symbols, none becomes 0 or 1 or ceases to be, and those that a node
touches are equal where they were.  Then shapes are evaluated in place of inferred, and constants
computed of them again.

Source: guards of torch.compile's dynamic shapes (0 and 1 are special, equalities are guarded).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from gradtool.graph.injection import provided
from gradtool.graph.limits import MOST_ELEMENTS
from gradtool.graph.predicates import NO_DATA
from gradtool.graph.randomness import may_draw
from gradtool.graph.specs import Spec, spec_of
from gradtool.io import array, rules
from gradtool.program.flatten import Flat, Recipe
from gradtool.program.kinds import KEPT_BYTES
from gradtool.shapes.folding import FOLDED_BYTES, SHARE

Dims = Mapping[str, int]
Sizes = dict[str, int]  # by expression
Specs = dict[ir.Value, Spec | None]
Known = dict[ir.Value, np.ndarray[Any, Any]]

_POLYNOMIAL = re.compile(r"(?:[A-Za-z_]\w*(?![\w(])|\d+|[ +*()-])+")
_MOST = FOLDED_BYTES // SHARE  # bytes of a constant


class Sized(NamedTuple):
    """Specs and constants at other sizes, and whether no further sizes of a node are equal."""

    specs: Specs
    constants: Known
    is_alike: bool


class SizeGuards:
    """The guards of the sizes of a flattening.

    The model is followed in place.  `moving` are the values that differ with sizes in shape, data
    or strides, `recipes` the nodes that touch such.
    """

    def __init__(self, opened: ir.Model, flat: Flat, dims: Dims) -> None:
        """Take over a flattening, of a model that is `opened` beside, at some sizes."""
        self._flat, self._dims = flat, dict(dims)
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
        self.moving = {*self._open, *(v for node in self._depending for v in node.outputs)}
        for recipe in flat.recipes:
            if recipe.step is None and not self.moving.isdisjoint(recipe.node.inputs):
                self.moving.update(recipe.node.outputs)
        self.recipes = [r for r in flat.recipes if not self.moving.isdisjoint(
            (*r.node.inputs, *r.node.outputs))]  # fmt: skip
        self._judged = [node for node in nodes if rules.judges(node, self.moving)]
        self._patterns = list(dict.fromkeys(map(self._pattern, self.recipes)))
        self._before = self._sizes(dims) or {}

    def at(self, dims: Dims) -> Sized | None:
        """The model at other sizes; None where these decide otherwise.

        Raises:
            ModelError: a node does not fit these sizes.
        """
        sizes = self._sizes(dims) if dims.keys() == self._dims.keys() else None
        if sizes is None:
            return None
        alike = [self._is_alike(pattern, sizes) for pattern in self._patterns]
        if None in alike:
            return None
        specs = self._resized(sizes)
        constants = self._constants(specs)
        if constants is None:
            return None
        rules.check(self._flat.model, nodes=self._judged)
        return Sized(specs, constants, all(alike))

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

    def _is_alike(self, pattern: tuple[int | str, ...], sizes: Sizes) -> bool | None:
        """Whether the same sizes are equal; None if others are, or 0 or 1 is not what it was."""
        before = [d if isinstance(d, int) else self._before[d] for d in pattern]
        after = [d if isinstance(d, int) else sizes[d] for d in pattern]
        pairs = set(zip(before, after, strict=True))
        if len(pairs) > len(set(before)) or any(
            old != new for old, new in pairs if old <= 1 or new <= 1
        ):
            return None
        return len(pairs) == len(set(after))

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

    def _constants(self, specs: Specs) -> Known | None:
        """Constants known before a run; None if somewhere it is kept otherwise."""
        constants: Known = {}
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
                constants[value] = data
        return constants


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
