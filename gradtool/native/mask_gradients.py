"""Chunks of the gradients of attention by masks, and the workspace of their parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gradtool.native.call import Array

Dims = tuple[int, ...]
MOST = 1 << 22  # floats of partial sums beside the first: threads are not worth any memory


class Shaped(Protocol):
    """An array, or the spec of one."""

    @property
    def shape(self) -> Dims: ...


class Heads(Protocol):
    """Batches, and groups of heads of queries that share a head of keys."""

    @property
    def batch(self) -> int: ...
    @property
    def groups(self) -> int: ...


def whole(shape: Dims) -> Dims:
    """The four sizes of a mask."""
    return (1,) * (4 - len(shape)) + tuple(shape)


@dataclass(frozen=True)
class Cut:
    """Pairs of batch and group, `batch · groups + group`, that add to the same places in order.

    A class of `members` is cut into parts if there are fewer classes than threads may work. Those
    after the first keep sums of their own.
    """

    members: int = 1
    member_step: int = 1
    class_step: int = 1
    parts: int = 1

    @staticmethod
    def of(n: Heads, masks: Sequence[Shaped], slots: int) -> Cut:
        """The cut for gradients of masks, whichever of them are wanted: bits are the same."""
        wholes = [whole(mask.shape) for mask in masks]
        batches = n.batch if any(shape[0] == 1 for shape in wholes) else 1
        groups = n.groups if any(shape[1] == 1 for shape in wholes) else 1
        members = max(1, batches * groups)
        classes = max(1, n.batch * n.groups // members)
        able = 1 + MOST // max(1, *(math.prod(shape) for shape in wholes))
        parts = min(members, -(-slots // classes), able)
        if groups > 1:
            return Cut(members, 1, groups, parts)
        return Cut(members, n.groups, 1, parts)


@dataclass(frozen=True)
class Wanted:
    """The gradients of the masks `of` other than None, and their chunks."""

    n: Heads
    masks: Sequence[Shaped]
    gradients: dict[int, Shaped]
    cut: Cut

    @staticmethod
    def of(
        n: Heads, masks: Sequence[Shaped], of: Sequence[int], out: Sequence[Shaped | None],
        slots: int,
    ) -> Wanted:  # fmt: skip
        """Of outputs for the masks `of`, which may be fewer."""
        found = {i: d for i, d in zip(of, out, strict=False) if d is not None}
        cut = Cut.of(n, [masks[i] for i in of], slots) if found else Cut()
        return Wanted(n, masks, found, cut)

    @property
    def floats(self) -> int:
        """Floats of the sums of all parts but the first."""
        return sum(size for _, size in self._shared())

    def table(self, begin: int) -> Array | None:
        """The table of `struct mask_grad`, whose sums lie from `begin` on in the workspace."""
        if not self.gradients:
            return None
        found = np.zeros((len(self.masks), 3), np.int64)
        for i, gradient in self.gradients.items():
            assert isinstance(gradient, np.ndarray)  # noqa: S101 - specs are not bound
            found[i] = gradient.ctypes.data, gradient.size, -1
        for i, size in self._shared():
            found[i, 2], begin = begin, begin + size
        return found

    def _shared(self) -> Iterator[tuple[int, int]]:
        """Gradients to whose places several chunks or members add, and floats of their parts."""
        for i in self.gradients:
            batches, heads, *_ = whole(self.masks[i].shape)
            if (batches == 1 and self.n.batch > 1) or (heads == 1 and self.n.groups > 1):
                yield i, (self.cut.parts - 1) * math.prod(self.masks[i].shape)
