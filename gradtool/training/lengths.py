"""Sizes of batches rounded up, so that fewer are planned: padded where that changes no gradient.

Masks and ignored labels are found by what they do: the gradients of a batch and those of the same
batch with more padding are held against each other, on parameters that are drawn, so that nothing
cancels because it is still zero.  A size whose padding changes them stays as it is.

Source: bucketing of sequence lengths (Khomenko et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import GradtoolError, UsageError
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import execute
from gradtool.graph.counter_rng import numbers_of
from gradtool.text.words import some
from gradtool.training.callbacks import Watcher
from gradtool.training.checks import range_of
from gradtool.training.data import Arrays
from gradtool.training.graphs import Recipe
from gradtool.training.input_spec import InputSpec
from gradtool.workloads.run_options import RunOptions

AUTO = "auto"
_FINE = 3  # bits behind the first of a size that is rounded to: eight sizes to a doubling
_MORE = 3  # elements that a batch is padded by to look what that changes
_CLOSE = 3e-5  # of the largest element of a gradient: rounding
_SPREAD = 0.1  # of a parameter's size, what is added to it


@dataclass(frozen=True)
class Lengths:
    """Padded sizes of batches: sizes that are `chosen`, or by themselves where there are none.

    `axes` are those of inputs that are rounded up, by name; `fills` what they are padded with.
    """

    axes: Mapping[str, tuple[int, ...]]
    fills: Mapping[str, int]
    chosen: tuple[int, ...] = ()

    def rounded(self, size: int) -> int:
        """The size that another one is padded to: itself where none that is chosen is larger."""
        if self.chosen:
            return min((each for each in self.chosen if each >= size), default=size)
        grain = 1 << max((size - 1).bit_length() - 1 - _FINE, 0) if size > 1 else 1
        return -(-size // grain) * grain

    def padded(self, batch: Mapping[str, Any], more: int = 0) -> Arrays:
        """A batch padded to the sizes it is rounded up to, or by so many `more` elements."""
        made = dict(batch)
        for name, axes in self.axes.items():
            array = made[name]
            widths = [(0, 0)] * array.ndim
            for axis in axes:
                size = array.shape[axis]
                widths[axis] = 0, more or self.rounded(size) - size
            if any(end for _, end in widths):
                made[name] = np.pad(array, widths, constant_values=self.fills[name])
        return made


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
    chosen, rounding = _sizes(asked), _Rounding(recipe, takes, sample())
    found = [symbol for symbol in rounding.symbols if rounding.changes_nothing(symbol)]
    made = rounding.lengths(found, chosen)
    for line in _told(rounding, found, made):
        watcher.said(line)
    return made if found else None


def _sizes(asked: str) -> tuple[int, ...]:
    if asked == AUTO:
        return ()
    try:
        found = tuple(sorted({int(each) for each in asked.split(",")}))
    except ValueError:
        found = ()
    if not found or found[0] < 1:
        raise UsageError(f"--lengths {asked}: auto, or sizes as in 8,16,32")
    return found


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
        self._before: Mapping[str, Any] | None = None
        self._model: ir.Model | None = None

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
        padded = self.lengths([symbol], ()).padded(self._batch, _MORE)
        try:
            before = self._before = self._before or self._gradients(self._batch)
            after = self._gradients(padded)
        except GradtoolError:
            return False
        return all(_is_close(before[name], after[name]) for name in before)

    def _gradients(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Loss and gradients, of drawn parameters."""
        if self._model is None:
            training = self._recipe.differentiate(self._recipe.options.without_updates())
            self._model = _drawn(training.model, training.gradients)
        numbers = {name: np.asarray(0, np.int64) for name in numbers_of(self._model).values()}
        result = execute(self._model, {**numbers, **batch}, RunOptions(device="cpu"))
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


def _is_close(before: Any, after: Any) -> bool:
    before, after = np.asarray(before, np.float64), np.asarray(after, np.float64)
    if before.shape != after.shape or not np.isfinite(before).all():
        return False
    most = float(np.abs(before).max(initial=0.0))
    return bool(np.abs(before - after).max(initial=0.0) <= _CLOSE * most)
