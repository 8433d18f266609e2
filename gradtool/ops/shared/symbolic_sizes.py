"""Sizes that composites take as an input: the shape of a value whose data they don't read."""

from __future__ import annotations

import json

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.composites import Outputs
from gradtool.graph.constants import array, integers
from gradtool.graph.metadata import ELEMENTS
from gradtool.graph.typed import Dim, Tensor


def dims(shape: ir.Value) -> list[Dim]:
    """The elements of a shape vector: numbers, expressions, or unnamed where nothing is known."""
    constant = integers(shape)
    if constant is not None:
        return list(constant)
    noted = shape.metadata_props.get(ELEMENTS)
    if noted is not None:
        return [
            size if isinstance(size, int) else ir.SymbolicDim(_by_floors(size))
            for size in json.loads(noted)
        ]
    rank = shape.shape[0] if shape.shape is not None else None
    return [ir.SymbolicDim(None) for _ in range(rank if isinstance(rank, int) else 0)]


def like_shape(dy: Tensor, shape: Tensor) -> Outputs:
    """The type of dy and the shape of x."""
    return [(dims(shape), dy.dtype)]


def part(op: Builder, vector: Tensor, index: int) -> Tensor:
    """Element `index` of a vector, as a vector."""
    known = array(vector)
    return (
        op.slice(vector, 0, index, index + 1) if known is None else op.constant(known[index:][:1])
    )


def _by_floors(size: str | None) -> str | None:
    """A size expression without `ceiling`, which onnx-ir writes but does not read."""
    while size is not None and (start := size.find("ceiling(")) >= 0:
        begin = start + len("ceiling(")
        depth, end = 1, begin
        while depth:
            depth += {"(": 1, ")": -1}.get(size[end], 0)
            end += 1
        size = f"{size[:start]}(-floor(-({size[begin : end - 1]}))){size[end:]}"
    return size
