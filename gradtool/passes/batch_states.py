"""States of values in a graph whose inputs have the examples of a batch, for rules.

A value is one of

    Fixed   the same whatever the batch
    Rows    examples along an axis, each computed from its own example alone
    Total   over the examples: the sum, or the mean, of a value of each
    Sized   numbers that follow from the number of examples
    Mixed   anything else: it cannot be put together from parts of a batch

Sums over examples that follow from data alone (how many labels count, say) can be known of a whole
batch before any of its parts is computed.  Where another operator needs one as a number it becomes
`ahead`, and is Fixed from there on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from gradtool.graph import constants, walk
from gradtool.graph.composites import DOMAIN
from gradtool.graph.randomness import may_draw
from gradtool.graph.reads import dependent
from gradtool.graph.summarized import evaluated

Kind = Literal["sum", "mean", "mixed"]
Array = np.ndarray[Any, Any]
FIRST, SECOND = 1_000_003, 1_000_033  # two numbers of examples, prime and larger than other sizes
_SYMBOLS = 10_007  # from which on other open sizes are, each another


@dataclass(frozen=True)
class Fixed:
    """The same whatever the batch."""


@dataclass(frozen=True)
class Rows:
    """Examples along `axis`, of size `outer · examples · inner`.

    `even` rows are alike, or drawn; `own` holds the number of each example, or that first along
    the last axis; times a `stride`, where there is one, and `placed`: plus places below it.
    """

    axis: int
    outer: int = 1
    inner: int = 1
    even: bool = False
    own: bool = False
    stride: int = 0
    placed: bool = False


@dataclass(frozen=True)
class Total:
    """The sum or mean over examples; `mixed`: of both, or beside a constant."""

    kind: Kind


@dataclass(frozen=True)
class Sized:
    """Numbers decided by the number of examples: their values for two of these, if known."""

    first: Array | None
    second: Array | None


@dataclass(frozen=True)
class Mixed:
    """No sum of parts; `why` says where that begins."""

    why: str


State = Fixed | Rows | Total | Sized | Mixed
FIXED = Fixed()
Rule = Callable[["Batch", ir.Node, list["State"]], "State | list[State]"]


class MixesError(Exception):
    """An operator makes one example's result depend on others."""


class Batch(ABC):
    """The known states of a graph's values, its inputs having examples along `axes`.

    `symbol` is the size of these axes, or `size` is, where it is fixed.  Values that follow from
    `trained` ones are never `ahead`.
    """

    def __init__(
        self,
        graph: ir.Graph,
        axes: Mapping[str, int | None],
        symbol: str | None,
        size: int | None,
        trained: Iterable[ir.Value],
    ) -> None:
        self.graph, self._name = graph, symbol
        self.symbol = symbol if size is None else None
        self.count = size if size is not None else FIRST
        self.counts = (FIRST, SECOND) if size is None else (size, size)
        self._bindings: dict[str, int] = {}
        self._symbols: dict[int, dict[str, int]] = {}
        self._sizes: dict[tuple[str, int], int] = {}
        drawn = [v for n in walk.nodes(graph) if may_draw(n) for v in n.outputs]
        self._changing = dependent(graph, [*trained, *drawn])
        self.states: dict[ir.Value, State] = {}
        self.ahead: dict[ir.Value, Kind] = {}
        for value in graph.inputs:
            axis = axes.get(value.name or "")
            self.states[value] = FIXED if axis is None else Rows(axis)
        self.walk(graph)

    def of(self, value: ir.Value | None) -> State:
        """The state of a value; an absent one or an initializer is the same in every batch."""
        return FIXED if value is None else self.states.get(value, FIXED)

    # ------------------------------------------------------------------- sizes

    def dims(self, value: ir.Value, count: int | None = None) -> list[int]:
        """The sizes of a value, of so many examples. Raises MixesError if its rank is unknown."""
        if value.shape is None:
            raise MixesError(f"the shape of {value.name!r} is unknown")
        return [self._size(d, count or self.count) for d in value.shape]

    def _size(self, dim: int | ir.SymbolicDim, count: int) -> int:
        if isinstance(dim, int):
            return dim
        known = self._sizes.get((str(dim.value), count))
        if known is not None:
            return known
        symbols = self._symbols.setdefault(count, {self._name or "": count})
        found = evaluated(dim, symbols, self._another)
        size = found if found is not None and found > 0 else 1
        self._sizes[str(dim.value), count] = size
        return size

    def _another(self, symbol: str) -> int:
        """A size of its own for an open one."""
        return self._bindings.setdefault(symbol, _SYMBOLS + 2 * len(self._bindings))

    def varying(self, value: ir.Value) -> list[int]:
        """The axes whose size the number of examples decides; none where that is fixed."""
        if self.symbol is None or value.shape is None:
            return []
        pairs = zip(self.dims(value, FIRST), self.dims(value, SECOND), strict=True)
        return [axis for axis, (a, b) in enumerate(pairs) if a != b]

    def even(self, value: ir.Value) -> State:
        """The state of a value equal for all examples, in the value's shape."""
        axes = self.varying(value)
        if len(axes) > 1:
            raise MixesError("its result has two axes of examples")
        if not axes:
            return FIXED
        return Rows(axes[0], 1, self.dims(value)[axes[0]] // self.count, even=True)

    def choose(self, node: ir.Node, found: Sequence[Rows]) -> Rows:
        """The batch axis of a Reshape: of one example there may be several answers."""
        del node
        return found[0]

    def is_count(self, state: Sized) -> bool:
        """Whether a number is proportional to the number of examples."""
        if state.first is None or state.second is None or state.first.size != 1:
            return False
        return bool(state.first * SECOND == state.second * FIRST)

    def constant(self, node: ir.Node, slot: int) -> Array | None:
        """A constant operand."""
        found = node.inputs[slot] if len(node.inputs) > slot else None
        array: Array | None = constants.array(found)
        return array

    @abstractmethod
    def walk(self, graph: ir.Graph) -> None:
        """Find the states of the results of a graph's or a body's nodes."""

    @abstractmethod
    def follow(self, graph: ir.Graph, given: Sequence[State]) -> list[State]:
        """The states of a body's results, for the given ones of its inputs."""


def is_standard(node: ir.Node) -> bool:
    """Whether an operator is ONNX's or a composite of ours."""
    return node.domain in ("", "ai.onnx", DOMAIN)
