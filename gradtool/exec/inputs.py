"""Inputs of a run: read from files, or drawn at random within what the graph can take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import available_memory
from gradtool.exec.feeds import buffers, defaults, inputs_of, require_tensor
from gradtool.graph.specs import spec_of
from gradtool.io import npy

BLOCK = 2**13  # numbers drawn at once
Arrays = dict[str, np.ndarray[Any, Any]]
_DRAWN = 8  # bytes of an element as it is drawn


def read(source: str) -> Arrays:
    """Arrays by name, from an `.npz` file or a folder of `.npy` files. Nothing is unpickled.

    Raises:
        UsageError: the file cannot be read as that.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.npy"))
        if not files:
            raise UsageError(f"{source}: the folder holds no .npy file")
        return {
            f.stem: array for f in files for array in npy.read(f, available_memory.free()).values()
        }
    if not path.exists():
        raise UsageError(f"{source}: no such file")
    return npy.read(path, available_memory.free())


def random(model: ir.Model, seed: int) -> Arrays:
    """Inputs drawn from PCG64: normal floats, integers valid for their readers.

    Gradient buffers are zero; inputs with a default have that.
    """
    rng = np.random.default_rng(seed)
    _require_room(model)
    drawn = defaults(model)
    zero = buffers(model)
    for value in inputs_of(model):
        if value.name in drawn:
            continue
        require_tensor(value)
        if value.shape is None or value.dtype is None:
            raise UsageError(f"input {value.name!r} has no shape; give inputs in a file")
        shape = tuple(value.shape.numpy())
        dtype = np.dtype(value.dtype.numpy())
        if value.name in zero:
            drawn[value.name or ""] = np.zeros(shape, dtype)
        elif value.dtype.is_floating_point():
            drawn[value.name or ""] = _normal(rng, shape, dtype)
        elif dtype.kind == "b":
            drawn[value.name or ""] = rng.random(shape) < 0.5
        else:
            drawn[value.name or ""] = rng.integers(0, _limit(value), shape).astype(dtype)
    return drawn


def _require_room(model: ir.Model) -> None:
    """Refuse inputs that memory cannot hold twice: as drawn, and where a step reads them."""
    specs = [spec for v in inputs_of(model) if (spec := spec_of(v)) is not None]
    largest = max((math.prod(spec.shape) for spec in specs), default=0)
    available_memory.require(2 * sum(spec.bytes for spec in specs) + _DRAWN * largest, "inputs")


def _normal(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Normal numbers, drawn as float64 in blocks."""
    drawn = np.empty(shape, dtype)
    flat = drawn.reshape(-1)
    for start in range(0, flat.size, BLOCK):
        part = flat[start : start + BLOCK]
        part[:] = rng.standard_normal(part.size).astype(dtype)
    return drawn


def _limit(value: ir.Value) -> int:
    """The smallest bound that readers put on an index; 2 if none does."""
    bounds = [size for _, size in readers([value])]
    return max(1, min(bounds)) if bounds else 2


_SAME_VALUES = ("Reshape", "Squeeze", "Unsqueeze", "Transpose", "Cast", "Identity", "Flatten",
                "Slice", "Split", "Expand", "Gather", "Concat", "Clip", "Max")  # fmt: skip


def _axis_size(axis: int | str, data: int = 0) -> Callable[[ir.Node], int | None]:
    def bound(node: ir.Node) -> int | None:
        source = node.inputs[data]
        where = axis if isinstance(axis, int) else node.attributes.get_int(axis, 0)
        if source is None or source.shape is None:
            return None
        size = source.shape[where]
        return size if isinstance(size, int) else None

    return bound


def _classes(node: ir.Node) -> int | None:
    """The classes of a linear layer's scores."""
    return _axis_size(0 if node.attributes.get_int("transB", 0) else 1, data=2)(node)


_READERS: dict[str, tuple[int, Callable[[ir.Node], int | None]]] = {
    "Gather": (1, _axis_size("axis")),
    "GatherElements": (1, _axis_size("axis")),
    "ScatterElements": (1, _axis_size("axis")),
    "GatherND": (1, _axis_size(0)),
    "OneHot": (0, lambda _: None),
    "SoftmaxCrossEntropyLoss": (1, _axis_size(1)),
    "NegativeLogLikelihoodLoss": (1, _axis_size(1)),
    "LinearCrossEntropy": (1, _classes),
}


def readers(values: Iterable[ir.Value]) -> Iterator[tuple[ir.Node, int]]:
    """The nodes that take integers as places on an axis, whatever moves these, and its size."""
    seen: set[ir.Value] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop(0)
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses():
            slot, bound = _READERS.get(use.node.op_type, (-1, None))
            if use.idx == slot and bound is not None:
                size = bound(use.node)
                if size is not None:
                    yield use.node, size
            elif use.idx == 0 and use.node.op_type in _SAME_VALUES:
                waiting.extend(use.node.outputs)


def is_raised(node: ir.Node, slot: int) -> bool:
    """Whether integers that a node takes as places have come through a lower bound."""
    value = node.inputs[slot]
    made = None if value is None else value.producer()
    while made is not None and made.op_type in _SAME_VALUES:
        if made.op_type == "Max":
            return True
        made = made.inputs[0].producer() if made.inputs[0] is not None else None
    return False
