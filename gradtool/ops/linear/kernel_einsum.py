"""Einsum: diagonals and sums of each operand, then products of matrices, two operands at a time.

The steps and the arrays they take are decided from the shapes alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import ModelError
from gradtool.graph.specs import Spec
from gradtool.operators.equations import parse
from gradtool.ops.kernels import kernel
from gradtool.ops.linear.kernel import product, product_work
from gradtool.ops.shared.types import Array, Arrays, DType, Specs


@dataclass(frozen=True)
class Tensor:
    """A named window on one of the buffers: inputs, work arrays, then the output."""

    indices: tuple[str, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    buffer: int

    def ordered(self, indices: Sequence[str]) -> Tensor:
        """The axes in another order."""
        axes = [self.indices.index(i) for i in indices]
        shape = tuple(self.shape[a] for a in axes)
        return Tensor(tuple(indices), shape, tuple(self.strides[a] for a in axes), self.buffer)

    def spread(self, indices: Sequence[str]) -> Tensor:
        """The axes in another order, with axes of size one for missing indices."""
        known = dict(zip(self.indices, zip(self.shape, self.strides, strict=True), strict=True))
        axes = [known.get(i, (1, 0)) for i in indices]
        shape, strides = tuple(n for n, _ in axes), tuple(s for _, s in axes)
        return Tensor(tuple(indices), shape, strides, self.buffer)

    def matrix(
        self, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
    ) -> Tensor | None:
        """The window as a stack of matrices, or None if BLAS couldn't take it as it lies."""
        head = self.ordered(batch)
        n, row = self._merged(rows)
        m, column = self._merged(columns)
        if row is None or column is None:
            return None
        if m == 1:
            column = 1
        if n == 1:
            row = m if column == 1 else 1
        if 1 not in (row, column):
            return None
        return Tensor((), (*head.shape, n, m), (*head.strides, row, column), self.buffer)

    def _merged(self, indices: Sequence[str]) -> tuple[int, int | None]:
        """Size and stride of some axes taken as one; the stride is None if there is none."""
        part = self.ordered(indices)
        size, stride = 1, 1
        for n, s in reversed([p for p in zip(part.shape, part.strides, strict=True) if p[0] != 1]):
            if size > 1 and s != size * stride:
                return size, None
            stride = s if size == 1 else stride
            size *= n
        return size, stride


class Plan:
    """The steps of one equation on operands of given shapes, and the work arrays they take."""

    def __init__(self, shapes: Sequence[Sequence[int]], dtype: DType, equation: str) -> None:
        operands, result = parse(equation, [len(s) for s in shapes])
        self.dtype, self.inputs, self.result = np.dtype(dtype), len(shapes), result
        self.specs: list[Spec] = []
        self.steps: list[tuple[str, tuple[Tensor, ...], tuple[int, ...]]] = []
        self.sizes = _sizes(equation, operands, shapes)
        terms = [
            self._single(i, s, b) for b, (i, s) in enumerate(zip(operands, shapes, strict=True))
        ]
        terms = [self._summed(t, terms[:n] + terms[n + 1 :]) for n, t in enumerate(terms)]
        while len(terms) > 1:
            first, second, *rest = terms
            terms = [self._product(first, second, rest), *rest]
        if terms[0].buffer != -1:
            self._step("copy", terms[0].ordered(result), self._output())

    def _step(self, name: str, *tensors: Tensor, extra: Sequence[int] = ()) -> None:
        self.steps.append((name, tensors, tuple(extra)))

    def _output(self) -> Tensor:
        return _contiguous(self.result, [self.sizes[i] for i in self.result], -1)

    def _new(self, indices: Sequence[str]) -> Tensor:
        shape = [self.sizes[i] for i in indices]
        self.specs.append(Spec(tuple(shape), self.dtype))
        return _contiguous(indices, shape, self.inputs + len(self.specs) - 1)

    def _single(self, indices: Sequence[str], shape: Sequence[int], buffer: int) -> Tensor:
        """An operand's diagonal, without its broadcast axes."""
        strides: dict[str, int] = {}
        sizes: dict[str, int] = {}
        whole = _contiguous(indices, shape, buffer)
        for i, n, s in zip(indices, shape, whole.strides, strict=True):
            strides[i], sizes[i] = strides.get(i, 0) + s, n
        names = tuple(i for i in strides if sizes[i] == self.sizes[i])
        shape = tuple(sizes[i] for i in names)
        return Tensor(names, shape, tuple(strides[i] for i in names), buffer)

    def _summed(self, term: Tensor, others: Sequence[Tensor]) -> Tensor:
        """An operand summed over its private indices."""
        needed = {*self.result, *(i for o in others for i in o.indices)}
        alone = [i for i in term.indices if i not in needed]
        if not alone:
            return term
        rest = [i for i in term.indices if i in needed]
        made = self._new(rest)
        self._step("sum", term.ordered([*alone, *rest]), made)
        return made

    def _product(self, a: Tensor, b: Tensor, others: Sequence[Tensor]) -> Tensor:
        needed = {*self.result, *(i for o in others for i in o.indices)}
        both = [i for i in a.indices if i in b.indices]
        batch = [i for i in both if i in needed]
        inner = [i for i in both if i not in needed]
        left = [i for i in a.indices if i not in both]
        right = [i for i in b.indices if i not in both]
        order = (*batch, *left, *right)
        made = self._output() if not others and order == self.result else self._new(order)
        if inner:
            p = self._matrix(a, batch, left, inner)
            q = self._matrix(b, batch, inner, right)
            wide = product_work(p.shape[-2:], q.shape[-2:], self.dtype)
            extra = range(self.inputs + len(self.specs), self.inputs + len(self.specs) + len(wide))
            self.specs += wide
            self._step("product", p, q, _whole(made.matrix(batch, left, right)), extra=extra)
        else:
            self._step("multiply", a.spread(order), b.spread(order), made)
        return made

    def _matrix(
        self, term: Tensor, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
    ) -> Tensor:
        found = term.matrix(batch, rows, columns)
        if found is None:
            made = self._new([*batch, *rows, *columns])
            self._step("copy", term.ordered(made.indices), made)
            found = _whole(made.matrix(batch, rows, columns))
        return found


def _whole(view: Tensor | None) -> Tensor:
    """A view of an array without gaps, which there always is."""
    assert view is not None  # noqa: S101
    return view


def _sizes(
    equation: str, operands: Sequence[Sequence[str]], shapes: Sequence[Sequence[int]]
) -> dict[str, int]:
    """The size of every index: that of its axes, of which some may be one.

    Raises:
        ModelError: two axes of an index differ; views of them would reach beyond the operands.
    """
    sizes: dict[str, int] = {}
    for indices, shape in zip(operands, shapes, strict=True):
        own: dict[str, int] = {}
        for i, n in zip(indices, shape, strict=True):
            before = sizes.get(i, 1)
            if own.setdefault(i, n) != n or (n != before and 1 not in (n, before)):
                raise ModelError(
                    f"Einsum {equation!r}: index {i!r} has sizes that differ: {shapes}"
                )
            sizes[i] = n if before == 1 else before
    return sizes


def _contiguous(indices: Sequence[str], shape: Sequence[int], buffer: int) -> Tensor:
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * n)
    return Tensor(tuple(indices), tuple(shape), tuple(reversed(strides))[: len(shape)], buffer)


def _work(*inputs: Spec, out: Specs, equation: str) -> list[Spec]:
    return Plan([i.shape for i in inputs], out[0].dtype, equation).specs


@kernel("Einsum", work=_work)
def einsum(xp: Any, *inputs: Array, out: Arrays, work: Arrays, equation: str) -> None:
    """`y[result] = Σ x₁[…] · x₂[…] · …` over the indices that the result lacks."""
    plan = Plan([i.shape for i in inputs], out[0].dtype, equation)
    buffers = [*inputs, *work, out[0]]

    def view(tensor: Tensor) -> Array:
        base = buffers[tensor.buffer]
        strides = [s * base.itemsize for s in tensor.strides]
        return xp.lib.stride_tricks.as_strided(base, tensor.shape, strides)

    for name, tensors, extra in plan.steps:
        *given, y = (view(t) for t in tensors)
        if name == "copy":
            xp.copyto(y, given[0])
        elif name == "multiply":
            xp.multiply(*given, out=y)
        elif name == "sum":
            alone = given[0].ndim - y.ndim
            xp.sum(given[0], axis=tuple(range(alone)), out=y, dtype=y.dtype)
        else:
            a, b = given
            product(xp, a, b, y, [buffers[b] for b in extra])
