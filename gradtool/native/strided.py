"""Strided arrays as the library takes them: axes that could be one are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradtool.native.call import Array, Call, Signature

AXES = 6
Axis = tuple[int, ...]  # its size, and the steps of some arrays along it, in elements

COPY = Signature("copy", "from to table", "axes across bytes slots")
SPLIT = 4096  # elements of a line contiguous in both


def order(array: Array) -> list[int]:
    """The axes of an array, the outermost in memory first."""
    return sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))


def axes_of(shape: Sequence[int], *steps: Sequence[int]) -> list[Axis]:
    """The axes larger than one, adjacent ones merged if contiguous in all arrays."""
    found: list[Axis] = []
    for size, *each in zip(shape, *steps, strict=True):
        if size == 1:
            continue
        if found and all(
            outer == step * size for outer, step in zip(found[-1][1:], each, strict=True)
        ):
            found[-1] = (found[-1][0] * size, *each)
        else:
            found.append((size, *each))
    return found


def steps(array: Array) -> list[int]:
    """Elements between neighbours along each axis."""
    return [stride // array.itemsize for stride in array.strides]


def operand(array: Array, result: Array) -> list[int]:
    """The words of `struct strided` for an array broadcast to a result without gaps.

    Raises:
        ValueError: more axes are left than the library takes.
    """
    if array.shape == result.shape and array.flags.c_contiguous and result.flags.c_contiguous:
        found: list[Axis] = [(array.size, 1)]
    else:
        spread = np.broadcast_to(array, result.shape).transpose(order(result))
        found = axes_of(spread.shape, steps(spread)) or [(1, 1)]
    if len(found) > AXES:
        raise ValueError(f"{len(found)} axes; at most {AXES} are known")
    rest = [1] * (AXES - len(found))
    is_bool = int(array.dtype == np.bool_)
    return [array.ctypes.data, is_bool, len(found), *(a[0] for a in found), *rest,
            *(a[1] for a in found), *rest]  # fmt: skip


def is_held(words: Sequence[int]) -> bool:
    """Whether elements of an operand have to be copied to lie as the floats of a result."""
    return words[1:3] != [0, 1] or words[3 + AXES] != 1


def copy(source: Array, target: Array) -> Call:
    """Copy a source of the target's type, broadcast to it.

    Raises:
        ValueError: more axes are left than the library takes.
    """
    if source.dtype != target.dtype:
        raise TypeError(f"{source.dtype} is copied to {target.dtype}")
    outermost_first = order(target)
    spread = np.broadcast_to(source, target.shape).transpose(outermost_first)
    into = target.transpose(outermost_first)
    axes = axes_of(into.shape, steps(spread), steps(into))
    if len(axes) < 2:
        size, *each = axes[0] if axes else (1, 1, 1)
        line = SPLIT if size % SPLIT == 0 else size
        axes = [(size // line, *(line * step for step in each)), (line, *each)]
    if len(axes) > AXES:
        raise ValueError(f"{len(axes)} axes; at most {AXES} are known")
    table = np.ones((3, AXES), np.int64)
    table[:, : len(axes)] = np.array(axes).T
    call = COPY.bind(
        **{"from": source.ctypes.data, "to": target.ctypes.data}, table=table, axes=len(axes),
        across=_across(axes), bytes=target.itemsize,
    )  # fmt: skip
    call.operands = (source, target)
    return call


def _across(axes: Sequence[Axis]) -> int:
    """Beside the last axis the one of the source's unit stride, or the next."""
    outer = range(len(axes) - 1)
    if axes[-1][1] in (0, 1):
        return outer[-1]
    return min(outer, key=lambda axis: (axes[axis][1] == 0, abs(axes[axis][1])))
