"""Operands as the library wants them, through the workspace where they lie otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gradtool.graph.specs import Spec
from gradtool.native import strided
from gradtool.ops.native import Bound, in_turn
from gradtool.ops.shared.types import Array, Arrays


@dataclass(frozen=True)
class Laid(Spec):
    """The spec of a channels-last image."""

    @property
    def lying(self) -> tuple[int, ...]:
        """Its shape as it lies in memory."""
        return self.shape[0], *self.shape[2:], self.shape[1]


@dataclass(frozen=True)
class Apart(Spec):
    """The spec of a view whose elements do not follow each other."""


def is_last(image: Array) -> bool:
    """Whether an array without gaps lies channels last."""
    return not image.flags.c_contiguous


def lying(image: Array) -> Array:
    """An array without gaps as it lies in memory; None if it is None."""
    if image is None or not is_last(image):
        return image
    return image.transpose(0, 2, 3, 1)


def apart(*operands: Spec | None) -> int:
    """Bytes of workspace for copies of arrays with gaps."""
    return sum(each.bytes for each in operands if isinstance(each, Apart))


def turned(*images: Spec | None) -> int:
    """Bytes of workspace for images not channels last."""
    return sum(4 * -(-i.bytes // 4) for i in images if i is not None and not _lies_last(i))


def _lies_last(image: Spec) -> bool:
    """Whether it lies channels last, perhaps because rows would lie alike."""
    return isinstance(image, Laid) or 1 in (image.shape[1], math.prod(image.shape[2:]))


class Turns:
    """Cuts a workspace into arrays, and copies images into it and out of it."""

    def __init__(self, work: Arrays) -> None:
        """`work` holds one array of floats, or none."""
        self._work, self._used = work[0] if work else np.empty(0, np.float32), 0
        self._before: list[Bound] = []
        self._after: list[Bound] = []

    def read(self, image: Array) -> Array:
        """An image `[N, H, W, C]` to be read."""
        return self._turned(image, self._before, is_read=True)

    def write(self, image: Array) -> Array:
        """An image `[N, H, W, C]` to be written."""
        return self._turned(image, self._after, is_read=False)

    def together(self, view: Array) -> Array:
        """An array of rows to be read."""
        if view.flags.c_contiguous:
            return view
        made = self._room(view)
        self._before.append(strided.copy(view, made))
        return made

    def rest(self) -> Array:
        """The rest of the workspace."""
        return self._work[self._used :]

    def around(self, call: Bound) -> Bound:
        """A call with the copies before and after it."""
        return in_turn(*self._before, call, *self._after)

    def _turned(self, image: Array, calls: list[Bound], *, is_read: bool) -> Array:
        last = image.transpose(0, 2, 3, 1)
        if last.flags.c_contiguous:
            return last
        made = self._room(last)
        calls.append(strided.copy(last, made) if is_read else strided.copy(made, last))
        return made

    def _room(self, like: Array) -> Array:
        """Room for an array of the shape and type of another."""
        begin, self._used = self._used, self._used + -(-like.nbytes // 4)
        room = self._work[begin : self._used].view(np.uint8)[: like.nbytes]
        return room.view(like.dtype).reshape(like.shape)
