"""Settings of a loss over classes: `@axis=N,ignore=N,smoothing=EPS,weight=NAME|FILE,shift=N`."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.predicates import is_float
from gradtool.losses.kinds import Kind
from gradtool.text.words import suggest

CLASS_WEIGHTS = "gradtool.class_weights"  # in `ir.Value.meta`: nothing but a loss reads it
KEYS = ("axis", "ignore", "smoothing", "weight", "shift", "soft", "examples", "mask")
WEIGHING = ("examples", "mask")
SUFFIXES = (".npy", ".npz")
_MOST_WEIGHTS = 1 << 28  # bytes: one number a class
_GIVEN = re.compile(rf"(.*)@((?:{'|'.join(KEYS)}|[A-Za-z_-]+)=[^@]*)", re.DOTALL)


@dataclass(frozen=True)
class Settings:
    """Settings of a loss over classes; None and 0 where they say nothing.

    `ignore` is the label that does not count, `weight` a value `[C]` of the graph or a file with
    one, `shift` how many places ahead along the last axis beside the classes a label is; `soft`
    labels are probabilities in the shape of the scores.  `examples` is the input
    with a weight `[N]` for each example, `mask` that with one for each label.  `numbers` are what a
    formula takes by other names.
    """

    axis: int | None = None
    ignore: int | None = None
    smoothing: float = 0.0
    weight: str | None = None
    shift: int = 0
    soft: bool = False
    examples: str | None = None
    mask: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)


def split(text: str) -> tuple[str, str | None]:
    """A loss without its settings, and these."""
    found = _GIVEN.fullmatch(text)
    return (text, None) if found is None else (found[1], found[2])


def file_of(text: str) -> str | None:
    """The name in the settings of a loss that a file of class weights may have."""
    given = (each.partition("=") for each in (split(text)[1] or "").split(","))
    return next((v for key, _, v in given if key == "weight" and v.endswith(SUFFIXES)), None)


def settings(text: str, kind: Kind, output: ir.Value, wanted: str) -> Settings:
    """Settings as they are written behind `@`.

    Raises:
        UsageError: there is no such key, a value is out of range, or the loss has no classes.
    """
    given: dict[str, str] = {}
    known = (*KEYS, *kind.numbers)
    for each in text.split(","):
        key, equals, value = each.partition("=")
        if key not in known or not equals:
            hint = suggest(key, known)
            raise UsageError(f"--loss {wanted}: no setting {key!r} ({', '.join(known)}){hint}")
        if given.setdefault(key, value) is not value:
            raise UsageError(f"--loss {wanted}: {key} is given twice")
    takes = inspect.signature(kind.formula).parameters
    known_as = {key: "counts" if key in WEIGHING else key for key in given}
    of_classes = [key for key in given if key in KEYS and known_as[key] not in takes]
    if kind.labels != "classes" and of_classes:
        what = "axis of them" if "axis" in given else of_classes[0]
        raise UsageError(f"--loss {wanted}: {kind.said} has no classes, and no {what}")
    for key in ("ignore", "smoothing", "weight", "soft", *WEIGHING):
        if key in given and known_as[key] not in takes:
            raise UsageError(f"--loss {wanted}: {kind.said} takes no {key}")
    parse: Mapping[str, Callable[[str], Any]] = {
        "axis": lambda value: _axis(value, output, wanted),
        "ignore": lambda value: _integer("ignore", value, wanted),
        "smoothing": lambda value: _smoothing(value, wanted),
        "weight": lambda value: _named(value, wanted),
        "examples": lambda value: value,
        "mask": lambda value: value,
        "shift": lambda value: _shift(value, output, wanted),
        "soft": lambda value: _soft(value, wanted),
    }
    said = {key: parse[key](value) for key, value in given.items() if key in KEYS}
    numbers = {key: _number(key, given[key], wanted) for key in given if key not in KEYS}
    made = Settings(**said, numbers=numbers)
    if made.examples is not None and made.mask is not None:
        raise UsageError(f"--loss {wanted}: examples cannot be combined with mask")
    if made.soft and made.ignore is not None:
        raise UsageError(f"--loss {wanted}: soft=1 cannot be combined with ignore, a class index")
    return made


def _integer(key: str, text: str, wanted: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        example = {"axis": -1, "ignore": -100, "shift": 1}[key]
        raise UsageError(f"--loss {wanted}: write @{key}=N, as in @{key}={example}") from error


def _axis(text: str, output: ir.Value, wanted: str) -> int:
    rank, axis = len(output.shape or ()), _integer("axis", text, wanted)
    if not -rank <= axis < rank:
        raise UsageError(f"--loss {wanted}: {output.name!r} has shape {output.shape}")
    return axis % rank


def _number(key: str, text: str, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"--loss {wanted}: {key} needs a number above 0, as in @{key}=0.5")
    return value


def _smoothing(text: str, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageError(f"--loss {wanted}: smoothing needs a number from 0 to 1, as in 0.1")
    return value


def _shift(text: str, output: ir.Value, wanted: str) -> int:
    shift = _integer("shift", text, wanted)
    if shift < 0:
        raise UsageError(f"--loss {wanted}: shift needs a number of places, as in @shift=1")
    if shift and len(output.shape or ()) < 2:
        raise UsageError(
            f"--loss {wanted}: {output.name!r} has shape {output.shape}, a shift needs an axis of "
            "places beside the classes"
        )
    return shift


def _soft(text: str, wanted: str) -> bool:
    if text not in ("0", "1"):
        raise UsageError(f"--loss {wanted}: write soft=1, where labels are probabilities")
    return text == "1"


def _named(text: str, wanted: str) -> str:
    if not text:
        raise UsageError(f"--loss {wanted}: weight needs an initializer or a .npy or .npz file")
    return text


# ---------------------------------------------------------------------------- class weights


def class_weights(
    op: Builder, name: str, output: ir.Value, axis: int, wanted: str
) -> ir.Value | None:
    """The weights `[C]` that a name means: a value of the graph, else a file.

    Raises:
        UsageError: there is neither, or it has another shape or type.
    """
    dtype, classes = output.dtype, (output.shape or ())[axis]
    value = op.graph.initializers.get(name)
    value = value or next((v for v in op.graph.inputs if v.name == name), None)
    if value is not None:
        sizes = list(value.shape or ())
        _require(name, sizes, classes, wanted, is_number=is_float(value))
        if not value.uses():
            value.meta[CLASS_WEIGHTS] = True
        return value if value.dtype == dtype or dtype is None else op.Cast(value, to=dtype)
    if not name.endswith(SUFFIXES):
        known = [n for n, v in op.graph.initializers.items() if list(v.shape or ()) == [classes]]
        raise UsageError(
            f"--loss {wanted}: weight={name} is neither an initializer of the model nor a .npy or "
            f".npz file{suggest(name, known)}"
        )
    array = _read(name, wanted)
    _require(name, list(array.shape), classes, wanted, is_number=array.dtype.kind in "fiu")
    if not (np.isfinite(array).all() and (array >= 0).all()):
        raise UsageError(f"--loss {wanted}: {name} has a weight that is negative or not finite")
    return op.constant(array, dtype)


def _require(name: str, sizes: list[Any], classes: Any, wanted: str, *, is_number: bool) -> None:
    fits = len(sizes) == 1 and (not isinstance(classes, int) or sizes[0] in (classes, None))
    if not fits or not is_number:
        what = f"has shape {sizes}" if is_number else "holds no numbers"
        raise UsageError(
            f"--loss {wanted}: weight={name} {what}, the loss needs a number for each of "
            f"{classes} classes"
        )


def _read(name: str, wanted: str) -> np.ndarray[Any, Any]:
    """The one array of a file."""
    try:
        from gradtool.io import npy

        arrays = npy.read(Path(name), _MOST_WEIGHTS)
    except UsageError as error:
        raise UsageError(f"--loss {wanted}: {error}") from error
    if len(arrays) != 1:
        raise UsageError(f"--loss {wanted}: {name} has {len(arrays)} arrays, weight needs one")
    (array,) = arrays.values()
    return array
