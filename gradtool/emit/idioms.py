"""Idioms of the builder: short names for common operations of rules, for any shape.

Helpers ask `sizing` for sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.sizing import Sizing
from gradtool.graph.constants import integers
from gradtool.graph.predicates import has_sizes
from gradtool.graph.typed import Dim, Dims, Tensor, as_tensor


class Idioms(Sizing):
    """Mixed into the builder; everything here ends in `emit` calls."""

    # ------------------------------------------------------------------- layouts

    def reshape(self, x: Tensor, dims: Dims) -> Tensor:
        """`x` with shape `dims`; one size may be -1.  Nothing is emitted if it has that shape.

        In an empty tensor -1 is computed without the sizes of zero.
        """
        sizes = [d for d in x.shape if isinstance(d, int)]
        wanted = [d for d in dims if isinstance(d, int)]
        static = len(sizes) == len(x.shape) and len(wanted) == len(dims)
        if static and 0 in wanted and -1 in wanted:
            left = math.prod(d for d in sizes if d) // math.prod(d for d in wanted if d > 0)
            dims = [left if d == -1 else d for d in wanted]
        if list(x.shape) == list(dims):
            return x
        unknown = [i for i, d in enumerate(dims) if not isinstance(d, int)]
        if not unknown:
            known = np.asarray(dims, dtype=np.int64)
            return self.Reshape(x, known, allowzero=1 if 0 in dims else None)
        if 0 not in dims:
            plan: list[Any] = list(dims)
            for i in unknown:
                if i < len(x.shape) and x.shape[i] == dims[i]:
                    plan[i] = 0
            rest = [i for i, d in enumerate(plan) if not isinstance(d, int)]
            if len(rest) == 1 and -1 not in plan:
                plan[rest[0]] = -1
                rest = []
            if not rest:
                return self.Reshape(x, np.asarray(plan, dtype=np.int64))
        return self.Reshape(x, self.sizes(dims), allowzero=None if -1 in dims else 1)

    def reshape_like(self, x: Tensor, y: Tensor) -> Tensor:
        """`x` with the shape of `y`."""
        return self.reshape(x, list(y.shape))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """`x` with axes in the order `perm`."""
        return x if list(perm) == list(range(len(x.shape))) else self.Transpose(x, perm=list(perm))

    def swap_axes(self, x: Tensor, a: int, b: int) -> Tensor:
        """`x` with axes `a` and `b` exchanged."""
        perm = list(range(len(x.shape)))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(x, perm)

    def squeeze(self, x: Tensor, axes: int | Sequence[int]) -> Tensor:
        """`x` without the axes of size one named by `axes`."""
        axes = [axes] if isinstance(axes, int) else list(axes)
        return self.Squeeze(x, axes) if axes else x

    def unsqueeze(self, x: Tensor, axes: int | Sequence[int]) -> Tensor:
        """`x` with axes of size one inserted, to lie at `axes` of the result."""
        axes = [axes] if isinstance(axes, int) else list(axes)
        return self.Unsqueeze(x, axes) if axes else x

    def slice(self, x: Tensor, axis: int, start: Dim, end: Dim, step: int = 1) -> Tensor:
        """`x[..., start:end:step, ...]` along one axis, between bounds that may be sizes."""
        return self.Slice(x, self.sizes([start]), self.sizes([end]), [axis], [step])

    def crop(self, x: Tensor, sizes: Dims, axes: Iterable[int]) -> Tensor:
        """The first `sizes` elements of `x` along `axes`."""
        cut = [(a, s) for a, s in zip(axes, sizes, strict=True) if x.shape[a] != s]
        if not cut:
            return x
        ends = self.sizes([s for _, s in cut])
        return self.Slice(x, [0] * len(cut), ends, [a for a, _ in cut])

    def pad(
        self, x: Tensor, pads: Any, axes: Any = None, *, value: Any = None, mode: str | None = None
    ) -> Tensor:
        """`x` within a border; `pads` are the begins of `axes` (all if None), then their ends.

        The node has pads for every axis, constant ones where they are known, and no input `axes`:
        onnxruntime moves a Transpose past a Pad as if there were none.
        """
        return self.Pad(x, self.whole_pads(pads, axes, len(x.shape)), value, mode=mode)

    def whole_pads(self, pads: Any, axes: Any, rank: int) -> Any:
        """The pads of all axes: those of `axes`, and 0."""
        chosen = _known(axes)
        if axes is None:
            return pads
        if chosen is None:
            begins = self.Where(self.Less(axes, 0), self.Add(axes, rank), axes)
            places = self.Concat(begins, self.Add(begins, rank), axis=0)
            return self.ScatterElements([0] * (2 * rank), places, pads, axis=0)
        chosen = [axis % rank for axis in chosen]
        order = [*chosen, *(rank + axis for axis in chosen)]
        known = _known(pads)
        if known is not None:
            given = dict(zip(order, known, strict=True))
            return self.constant([given.get(place, 0) for place in range(2 * rank)])
        source = [order.index(place) if place in order else len(order) for place in range(2 * rank)]
        return self.Gather(self.Concat(pads, [0], axis=0), source)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """The parts joined along `axis`; a single part is itself."""
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=axis)

    # ------------------------------------------------------------- numbers, sums

    def cast(self, x: Tensor, dtype: ir.DataType) -> Tensor:
        """`x` as `dtype`; nothing is emitted if it is."""
        return x if x.dtype == dtype else self.Cast(x, to=dtype)

    def sum(self, x: Tensor, axes: Iterable[int], *, keepdims: bool = False) -> Tensor:
        """The sum over `axes` (none: `x` itself)."""
        axes = list(axes)
        return self.ReduceSum(x, axes, keepdims=int(keepdims)) if axes else x

    def mean(self, x: Tensor, axes: Iterable[int], *, keepdims: bool = True) -> Tensor:
        """The mean over `axes`, kept as axes of size one."""
        axes = list(axes)
        return self.ReduceMean(x, axes, keepdims=int(keepdims)) if axes else x

    def zeros_like(self, x: ir.Value) -> Tensor:
        """Zeros of the shape and type of `x`; a sequence of zeros for a sequence.

        The gradient of an optional value is that of its content.
        """
        if isinstance(x.type, ir.OptionalType):
            if not isinstance(x.type.elem_type, ir.TensorType) or x.shape is None:
                return self.zeros_like(self.OptionalGetElement(x))
            x = as_tensor(x)
            zero = np.zeros(1, dtype=x.dtype.numpy())
            return self.ConstantOfShape(self.sizes(list(x.shape)), value=zero)
        if isinstance(x.type, ir.SequenceType):
            return self.each(self.zeros_like, x)
        x = as_tensor(x)
        zero = np.zeros(1, dtype=x.dtype.numpy())
        return self.ConstantOfShape(self.shape(x), value=zero)

    def plus(self, a: ir.Value, b: ir.Value) -> Tensor:
        """The sum of two gradients of one value: of tensors, or element by element."""
        return self.total([a, b])

    def total(self, terms: Sequence[ir.Value]) -> Tensor:
        """The sum of several gradients of one value."""
        if isinstance(terms[0].type, ir.TensorType):
            add = self.Add if len(terms) == 2 else self.Sum
            like = terms[0] if terms[0].shape is None else None  # an element of a sequence
            return add(*terms, like=like)
        return self.each(self.total, *terms)

    def each(self, function: Callable[..., Tensor], *sequences: ir.Value) -> Tensor:
        """The sequence of `function(…)` of the elements of sequences."""
        formal = [self.formal("element", s.shape or (), as_tensor(s).dtype) for s in sequences]
        for value, sequence in zip(formal, sequences, strict=True):
            value.shape = sequence.shape
        with self.body(formal) as body:
            body.outputs.append(function(formal if len(formal) > 1 else formal[0]))
        return self.SequenceMap(*sequences, body=body)

    def expand(self, x: Tensor, like: Tensor) -> Tensor:
        """`x` broadcast to the shape of `like`."""
        return x if list(x.shape) == list(like.shape) else self.Expand(x, self.shape(like))

    def unbroadcast(self, dy: Tensor, x: Tensor) -> Tensor:
        """`dy` summed over the axes along which `x` was broadcast, to the shape of `x`.

        An axis whose sizes can't be compared now is decided at run time, from the shapes.
        """
        if has_sizes(dy.shape, x.shape):
            return dy
        lead = len(dy.shape) - len(x.shape)
        pairs = list(zip(dy.shape[lead:], x.shape, strict=True))
        if any(d != s and not isinstance(s, int) for d, s in pairs):
            return self._unbroadcast_at_run_time(dy, x, lead)
        stretched = [lead + i for i, (d, s) in enumerate(pairs) if s == 1 and d != 1]
        if lead and stretched:
            summed = self.ReduceSum(dy, [*range(lead), *stretched], keepdims=0)
            return self.Unsqueeze(summed, [a - lead for a in stretched])
        if lead:
            return self.sum(dy, range(lead))
        return self.sum(dy, stretched, keepdims=True)

    def _unbroadcast_at_run_time(self, dy: Tensor, x: Tensor, lead: int) -> Tensor:
        shape = self.Shape(x)
        padded = self.Concat([1] * lead, shape, axis=0) if lead else shape
        differs = self.Not(self.Equal(padded, self.Shape(dy)))
        axes = self.Squeeze(self.NonZero(differs), [0])
        summed = self.ReduceSum(dy, axes, keepdims=1, noop_with_empty_axes=1)
        result = self.Reshape(summed, shape, allowzero=1)
        result.shape = x.shape
        return result


def _known(vector: Any) -> list[int] | None:
    """The elements of a vector of integers, if they are known."""
    return integers(vector) if isinstance(vector, Tensor | None) else list(vector)
