"""Linear layers that a loss reads: their products, of floats or of few bits, and their blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradtool.graph.specs import Spec
from gradtool.operators.block_size import at_a_time
from gradtool.ops.quantize.kernel_low_bits import Coded
from gradtool.ops.shared.sums import accumulator
from gradtool.ops.shared.types import Array, DType

SCORES = 1 << 19  # of a block, where that leaves it as many classes as
CLASSES = 256  # which keep a product efficient
EVEN = 32  # classes: blocks are multiples of it
CODING = ("bits", "block_size", "size", "values")  # attributes of weights of few bits


@dataclass(frozen=True)
class Layer:
    """Sizes of a linear layer of `rows` inputs of `width` numbers, and its blocks of classes."""

    rows: int
    width: int
    classes: int
    turned: bool
    dtype: DType

    @staticmethod
    def of(x: Array | Spec, w: Array | Spec, turned: int) -> Layer:
        """The layer of `x` [N, K] and `w` [K, C], or [C, K] or codes [C, ...] where `turned`."""
        classes = w.shape[0 if turned else 1]
        rows, width = x.shape
        return Layer(rows, width, classes, bool(turned), accumulator(x.dtype))

    @property
    def size(self) -> int:
        """Classes of a block."""
        most = max(at_a_time(SCORES) // max(self.rows, 1), CLASSES)
        count = max(-(-self.classes // most), 1)
        return min(-(-self.classes // count // EVEN) * EVEN, self.classes)

    def blocks(self) -> Iterator[slice]:
        """The classes of each block."""
        for start in range(0, self.classes, max(self.size, 1)):
            yield slice(start, min(start + self.size, self.classes))


class Product(NamedTuple):
    """Rows [N, K] and weights [K, C], or [C, K] where `turned`, of a layer or of its adapter.

    Where weights are `coded`, in few bits, `w` are their codes.
    """

    x: Any  # an array, or its spec
    w: Any
    turned: bool
    coded: Coded | None = None

    def of_classes(self, w: Array, some: slice) -> Array:
        """The part of a matrix like the weights that is of some classes, [n, K]."""
        return w[some] if self.turned else w[:, some].T


def products(
    x: Array | Spec, w: Array | Spec, turned: int, low: Array | Spec | None = None,
    up: Array | Spec | None = None, *matrix: Array | Spec | None, **given: Any,
) -> list[Product]:  # fmt: skip
    """The products whose sum the scores are.

    With a `matrix`, codes' scale, zero and groups, it is of few bits as `given` attributes say.
    """
    coded = None
    if matrix and matrix[0] is not None:
        coded = Coded.of(w, *matrix, **coding(given))
    adapter = [] if low is None or up is None else [Product(low, up, turned=False)]
    return [Product(x, w, bool(turned), coded), *adapter]


def coding(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of attributes that say how weights are coded."""
    return {name: given[name] for name in CODING if name in given}


def wanted(of: Sequence[int], out: Sequence[Array | Spec | None]) -> list[int]:
    """The operands `of` whose gradient has a place."""
    return [i for i, d in zip(of, out, strict=True) if d is not None]
