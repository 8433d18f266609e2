"""Random operator cases: what one is, and what draws its parts.

A drawer is a function of a `Draw` that returns a `Case`.  Operator and number decide a case: the
same seed draws the same case, wherever and in whatever order cases are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 160
OPSETS = (18, 20, 22, 23)
DTYPES = ("float32", "float32", "float32", "float64", "float16")


@dataclass(frozen=True)
class Given:
    """An input of a case: differentiated, or only fed, or a constant of the model.

    A float is cast to the type of the case unless it is `exact`.  What is `closed` keeps its sizes
    where those of others are open.
    """

    array: Array
    moved: bool = False
    constant: bool = False
    exact: bool = False
    closed: bool = False

    def typed(self, dtype: str) -> Array:
        """The array as a model of floats of `dtype` takes it."""
        plain = self.array.dtype.kind != "f" or self.exact
        return self.array if plain else self.array.astype(dtype)


@dataclass(frozen=True)
class Case:
    """One operator with inputs and attributes; `opset` and `dtype` as drawn.

    `steps` are those of the differences, the best of which counts; `rough` bounds what rounding
    to single precision may change.
    """

    op: str
    number: int
    inputs: tuple[Given | None, ...]
    attributes: dict[str, Any]
    outputs: int
    opset: int
    dtype: str
    steps: tuple[float, ...]
    rough: float
    note: str = ""

    def array(self, slot: int) -> Array:
        """The array of an input that is there."""
        given = self.inputs[slot]
        assert given is not None
        return given.array

    @property
    def name(self) -> str:
        """What draws the case again."""
        return f"{self.op}:{self.number}"

    def __str__(self) -> str:
        shown = ", ".join(_show(g) for g in self.inputs)
        given = ", ".join(f"{k}={_short(v)}" for k, v in self.attributes.items())
        return f"{self.name} ({shown}) [{given}] {self.dtype}@{self.opset} {self.note}".strip()


def _show(given: Given | None) -> str:
    if given is None:
        return "-"
    sizes = "x".join(map(str, given.array.shape)) or "scalar"
    kind = given.array.dtype.kind
    if not given.moved and given.array.size <= 12 and kind in "iub":
        return f"{'const ' if given.constant else ''}{given.array.tolist()}"
    return sizes if given.moved else f"fixed {sizes}"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else str(np.asarray(value).tolist())[:60]


@dataclass
class Draw:
    """Draws what a case is made of; `case` puts it together."""

    op: str
    number: int
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([*self.op.encode(), self.number])

    # -------------------------------------------------------------------- choices

    def one(self, *options: Any) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    def flag(self, chance: float = 0.5) -> bool:
        """True with a chance."""
        return bool(self.rng.random() < chance)

    def int(self, low: int, high: int) -> int:
        """An integer of low … high."""
        return int(self.rng.integers(low, high + 1))

    def ints(self, count: int, low: int, high: int) -> list[int]:
        """Integers of low … high."""
        return [self.int(low, high) for _ in range(count)]

    def maybe(self, **options: Any) -> dict[str, Any]:
        """Each of the attributes, or its absence."""
        return {k: v for k, v in options.items() if self.flag()}

    # --------------------------------------------------------------------- shapes

    def size(self, low: int = 0, high: int = 5) -> int:
        """A size: often 1, now and then 0 where that is allowed."""
        if low == 0 and self.flag(0.06):
            return 0
        if low <= 1 and self.flag(0.2):
            return 1
        return self.int(max(low, 1), high)

    def shape(self, low: int = 0, high: int = 5, least: int = 0) -> tuple[int, ...]:
        """A shape of low … high axes, each of `least` elements."""
        rank = self.int(low, high)
        most = {0: 1, 1: 9, 2: 7, 3: 5, 4: 4}.get(rank, 3)
        sizes = [self.size(least, most) for _ in range(rank)]
        while math.prod(sizes) > MOST_ELEMENTS:
            sizes[int(np.argmax(sizes))] -= 1
        return tuple(sizes)

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts with another: without leading axes, with sizes of 1."""
        kept = list(shape[self.int(0, len(shape)) :]) if self.flag() else list(shape)
        return tuple(1 if self.flag(0.25) else s for s in kept)

    def axis(self, rank: int) -> int:
        """An axis, counted from either end."""
        return self.int(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Some axes, in any order, counted from either end."""
        count = self.int(min(least, rank), rank)
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - rank if self.flag() else int(a) for a in chosen]

    # --------------------------------------------------------------------- inputs

    def x(
        self, shape: Sequence[int], low: float = -2.0, high: float = 2.0, gap: float = 0.06,
        *, apart: bool = False, closed: bool = False,
    ) -> Given:  # fmt: skip
        """A differentiated input in [low, high], magnitudes of `gap` at least; or with elements
        `apart`, which all differ."""
        return Given(self.numbers(shape, low, high, gap, apart=apart), moved=True, closed=closed)

    def w(self, shape: Sequence[int], low: float = -1.0, high: float = 1.0) -> Given:
        """A differentiated input whose sizes are known."""
        return self.x(shape, low, high, 0.0, closed=self.flag(0.75))

    def numbers(
        self,
        shape: Sequence[int],
        low: float,
        high: float,
        gap: float = 0.0,
        *,
        apart: bool = False,
    ) -> Array:
        """Uniform numbers."""
        count = math.prod(shape)
        if apart and count:
            step = (high - low) / count
            made = self.rng.permutation(low + step * (np.arange(count) + 0.5)).reshape(shape)
        else:
            made = self.rng.uniform(low, high, tuple(shape))
        near = np.abs(made) < gap
        return np.where(near, made + np.copysign(gap, made), made)

    def fixed(self, array: Any, *, exact: bool = False, closed: bool = False) -> Given:
        """An input that isn't differentiated: fed, or a constant."""
        return Given(np.asarray(array), constant=self.flag(), exact=exact, closed=closed)

    def constant(self, array: Any, *, exact: bool = False) -> Given:
        """A constant."""
        return Given(np.asarray(array), constant=True, exact=exact)

    def indices(self, values: Any) -> Given:
        """Integers, a constant or fed; int64 or int32."""
        return self.fixed(np.asarray(values).astype(self.one(np.int64, np.int64, np.int32)))

    def sizes(self, values: Any) -> Given:
        """Constant int64."""
        return self.constant(np.asarray(values, np.int64))

    # ----------------------------------------------------------------------- case

    def case(
        self, *inputs: Given | None, outputs: int = 1, opset: int | Sequence[int] = OPSETS,
        dtypes: Sequence[str] = DTYPES, steps: Sequence[float] = (1e-3, 1e-4), rough: float = 1.0,
        note: str = "", **attributes: Any,
    ) -> Case:  # fmt: skip
        """The case of these; its opset and type are drawn from those that are named."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        dtype = self.one(*dtypes)
        opset = opset if isinstance(opset, int) else self.one(*opset)
        made = tuple(None if g is None else _rounded(g, dtype) for g in given)
        return Case(
            self.op, self.number, made, attributes, outputs, opset, dtype, tuple(steps), rough, note
        )


def _rounded(given: Given, dtype: str) -> Given:
    """With floats that the type holds, so that every type computes with the same."""
    if given.array.dtype.kind != "f" or given.exact:
        return given
    array = np.asarray(given.array).astype(dtype).astype(np.float64)
    return Given(array, given.moved, given.constant, given.exact, given.closed)


Drawer = Callable[[Draw], Case]
DRAWERS: dict[str, Drawer] = {}


def draws(*names: str) -> Callable[[Drawer], Drawer]:
    """Register the decorated function as the drawer of operators."""

    def register(drawer: Drawer) -> Drawer:
        DRAWERS.update(dict.fromkeys(names, drawer))
        return drawer

    return register


def draw(name: str) -> Case:
    """The case of a name, `Op:NUMBER`."""
    op, _, number = name.rpartition(":")
    made = Draw(op, int(number))
    return DRAWERS[op](made)
