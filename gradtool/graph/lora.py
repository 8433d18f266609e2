"""Low-rank adapters: their places beside weights, and weights merged with them.

Source: Hu et al. 2021 (arXiv:2106.09685).  As in PEFT (huggingface/peft), `A` is applied to the
operand of the weight, `B` to the result, and their product is scaled by `alpha / rank`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from gradtool.text.json_schema import Positive

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Adapter:
    """Two tensors beside a weight, by name.

    Of a weight [in, out], `a` is [in, rank] and `b` [rank, out]; of a flipped one [out, in, …],
    `a` is [rank · groups, in, …] and `b` [out, rank, 1 …], where the outputs fall into `groups`
    of their own.
    """

    weight: str
    a: str
    b: str
    scale: float
    flipped: Annotated[
        bool, "Whether the weight is stored as [out, in, ...]; else it is [in, out]."
    ]
    groups: Positive = 1

    @property
    def names(self) -> tuple[str, str]:
        """Both tensors."""
        return self.a, self.b

    def merged(self, weight: Array, a: Array, b: Array) -> Array:
        """The weight plus the product, in its type."""
        wide = np.promote_types(weight.dtype, np.float32)
        first, second = a.astype(wide), b.astype(wide)
        if not self.flipped:
            product = first @ second
        else:
            rank = len(first) // self.groups
            rows = first.reshape(self.groups, rank, -1)
            product = second.reshape(self.groups, -1, rank) @ rows
        total = weight.astype(wide) + self.scale * product.reshape(weight.shape)
        return np.asarray(total.astype(weight.dtype))


def read_adapters(found: list[dict[str, Any]]) -> tuple[Adapter, ...]:
    """The adapters in JSON.

    Raises:
        TypeError: they are none.
    """
    adapters = tuple(Adapter(**entry) for entry in found)
    for each in adapters:
        texts = all(isinstance(text, str) for text in (each.weight, *each.names))
        groups = type(each.groups) is int and each.groups > 0
        if not (texts and groups and abs(each.scale) < math.inf):
            raise TypeError(f"{each} is no adapter")
    return adapters


def merge(
    adapters: tuple[Adapter, ...], arrays: Mapping[str, Array], weight_of: Callable[[str], Array]
) -> Iterator[tuple[str, Array]]:
    """Arrays by name, one after the other, every adapter merged into its weight.

    A weight missing in `arrays` is found by `weight_of`.
    """
    merged: dict[str, Array] = {}
    for adapter in adapters:
        known = next((each for each in (merged, arrays) if adapter.weight in each), None)
        weight = weight_of(adapter.weight) if known is None else known[adapter.weight]
        merged[adapter.weight] = adapter.merged(weight, arrays[adapter.a], arrays[adapter.b])
    gone = {name for adapter in adapters for name in adapter.names}
    yield from ((name, arrays[name]) for name in arrays if name not in gone and name not in merged)
    yield from merged.items()
