"""Sizes of batches rounded up, so that fewer are planned: padded where that changes no gradient.

Masks and ignored labels are found by what they do: the gradients of a batch and those of the same
batch with more padding are held against each other, on parameters that are drawn, so that nothing
cancels because it is still zero.  A size whose padding changes them stays as it is.

Source: bucketing of sequence lengths (Khomenko et al. 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError, UsageError
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import execute
from gradtool.graph.randomness import numbers_of
from gradtool.passes.document_mask import DOCUMENTS
from gradtool.text.words import some
from gradtool.training.callbacks import Watcher
from gradtool.training.checks import range_of
from gradtool.training.data import Arrays
from gradtool.training.graphs import Recipe
from gradtool.training.input_spec import InputSpec
from gradtool.training.padding import MORE, Lengths, sizes_of
from gradtool.workloads.run_options import RunOptions

_CLOSE = 3e-5  # of the largest element of a gradient: rounding
_APART = 0.05  # as far as no rounding gets
_ACROSS = 1e-3  # as far as one text that another sees puts its gradients
_SPREAD = 0.1  # of a parameter's size, what is added to it


def lengths_of(
    asked: str | None,
    recipe: Recipe,
    takes: InputSpec,
    sample: Callable[[], Arrays],
    watcher: Watcher,
) -> Lengths | None:
    """How the sizes of batches are rounded up, of which people hear; None where they are not.

    Args:
        asked: `auto`, or sizes as in `8,16,32`; None: sizes stay as they are.
        recipe: what makes the gradients that padding has to leave as they are.
        takes: the inputs of the model.
        sample: gives a batch of the data.
        watcher: hears which sizes are padded, and by what.

    Raises:
        UsageError: `asked` is neither.
    """
    if asked is None:
        return None
    chosen, rounding = sizes_of(asked), _Rounding(recipe, takes, sample())
    found = [symbol for symbol in rounding.symbols if rounding.changes_nothing(symbol)]
    made = rounding.lengths(found, chosen)
    for line in _told(rounding, found, made):
        watcher.said(line)
    return made if found else None


def require_heeded(
    recipe: Recipe, takes: InputSpec, source: str, batch: Arrays, others: Mapping[str, Arrays],
    packed: tuple[Arrays, Arrays] | None = None,
) -> bool:  # fmt: skip
    """Refuse texts of which a model sees what it must not: a batch is held against others.

    `others` are by what to say where the loss or a gradient of one differs by more than rounding,
    also that of quantised activations.  A model that draws tells nothing.

    Returns whether that of `packed` texts differs where the first one does.

    Raises:
        UsageError: one does.
    """
    plain = replace(recipe, options=replace(recipe.options, train_mode=False))
    rounding = _Rounding(plain, takes, batch)
    if rounding.draws:
        return packed is not None and DOCUMENTS not in takes.inputs
    for what, other in others.items():
        if rounding.difference(other) > _APART:
            raise UsageError(f"{source}: {what}")
    return packed is not None and rounding.difference(*packed) > _ACROSS


def _told(rounding: _Rounding, found: list[str], made: Lengths) -> Iterator[str]:
    sizes = "eight sizes a doubling" if not made.chosen else some(map(str, made.chosen))
    if found:
        fills = ", ".join(f"{name!r} with {made.fills[name]}" for name in made.axes)
        yield (
            f"--lengths: {some(map(repr, found))} is rounded up to {sizes}, padding {fills}, which "
            "leaves the gradients of a batch as they are"
        )
    for symbol in rounding.symbols:
        if symbol not in found:
            yield (
                f"--lengths: {symbol!r} stays as it is: padding changes the loss or a gradient, or "
                "cannot be told; give a mask, or labels that are ignored"
            )
    if not rounding.symbols:
        yield "--lengths: the model leaves no size open but the examples"


class _Rounding:
    """The effect of padding on the gradients of a batch."""

    def __init__(self, recipe: Recipe, takes: InputSpec, batch: Arrays) -> None:
        self._recipe, self._takes, self._batch = recipe, takes, batch
        self._shapes = {n: v.shape.dims for n, v in takes.inputs.items() if v.shape is not None}
        texts = [d.value for dims in self._shapes.values() for d in dims
                 if isinstance(d, ir.SymbolicDim) and d.value is not None]  # fmt: skip
        inside = [t for t in texts if not t.isidentifier()]
        self.symbols = [
            text for text in dict.fromkeys(texts)
            if text.isidentifier() and text != takes.symbol and not any(text in t for t in inside)
        ]  # fmt: skip

    def lengths(self, symbols: list[str], chosen: tuple[int, ...]) -> Lengths:
        """The axes of some symbols, and the padding beyond the data."""
        axes = {
            name: found for name, dims in self._shapes.items()
            if (found := tuple(axis for axis, dim in enumerate(dims)
                               if isinstance(dim, ir.SymbolicDim) and dim.value in symbols))
        }  # fmt: skip
        ranges = {name: range_of(self._takes.inputs[name]) for name in axes}
        fills = {
            name: 0 if found is None or found.ignored is None else found.ignored
            for name, found in ranges.items()
        }
        return Lengths(axes, fills, chosen)

    def changes_nothing(self, symbol: str) -> bool:
        """Whether loss and gradients of a batch are the same, up to rounding, with more padding."""
        try:
            return self.difference(self.lengths([symbol], ()).padded(self._batch, MORE)) <= _CLOSE
        except GradtoolError:
            return False

    def difference(self, other: Arrays, batch: Arrays | None = None) -> float:
        """How far loss and gradients of another batch are, of the largest element of each."""
        before = self._own if batch is None else self._gradients(batch)
        after = self._gradients(other)
        return max(_difference(before[name], after[name]) for name in before)

    @property
    def draws(self) -> bool:
        """Whether the model draws numbers."""
        return bool(numbers_of(self._trained))

    @cached_property
    def _own(self) -> Mapping[str, Any]:
        return self._gradients(self._batch)

    @cached_property
    def _trained(self) -> ir.Model:
        training = self._recipe.differentiate(self._recipe.options.without_updates())
        return _drawn(training.model, training.gradients)

    def _gradients(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Loss and gradients, of drawn parameters."""
        numbers = {name: np.asarray(0, np.int64) for name in numbers_of(self._trained).values()}
        result = execute(self._trained, {**numbers, **batch}, RunOptions(device="cpu"))
        return {"": np.float64(result.loss or 0.0), **result.gradients}


def _drawn(model: ir.Model, names: Mapping[str, str]) -> ir.Model:
    """A model whose parameters are some way from where they begin."""
    made, read = model.clone(), parameters_of(model)
    made.meta.update(model.meta)
    draw = np.random.default_rng(0)
    for name in names:
        if name in made.graph.initializers:
            array = read(name)
            wide = array.astype(np.float32)
            size = float(np.sqrt(np.mean(np.square(wide)))) if wide.size else 0.0
            noise = _SPREAD * (size or 1.0) * draw.standard_normal(wide.shape)
            made.graph.initializers[name].const_value = ir.tensor(
                (wide + noise).astype(array.dtype), name=name
            )
    return made


def _difference(before: Any, after: Any) -> float:
    """How far arrays are apart, of the largest element; infinite where they cannot be compared."""
    before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if before.shape != after.shape or not np.isfinite(before).all():
        return math.inf
    apart = float(np.abs(before - after).max(initial=0.0))
    return apart / float(np.abs(before).max(initial=0.0)) if apart else 0.0
