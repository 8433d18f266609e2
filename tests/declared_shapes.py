"""Models whose files declare other shapes than their values have: runtimes take these for hints."""

from __future__ import annotations

import numpy as np
import onnx

KINDS = ("rank", "size", "-1", "0", "symbol", "symbol of an input", "none")


def undeclared(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without any shape of what nodes write."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


def declared_otherwise(
    model: onnx.ModelProto, seed: int, kinds: tuple[str, ...] = KINDS
) -> onnx.ModelProto:
    """The model with a drawn shape for each value that a node writes, most of them wrong."""
    rng = np.random.default_rng(seed)
    made = undeclared(model)
    inferred = onnx.shape_inference.infer_shapes(made)
    made.graph.value_info.extend(inferred.graph.value_info)
    for value, found in zip(made.graph.output, inferred.graph.output, strict=True):
        value.CopyFrom(found)
    symbols = [
        dim.dim_param for value in model.graph.input
        for dim in value.type.tensor_type.shape.dim if dim.dim_param
    ] or ["open"]  # fmt: skip
    for value in (*made.graph.value_info, *made.graph.output):
        if value.type.HasField("tensor_type"):
            _change(value.type.tensor_type, str(rng.choice(kinds)), symbols, rng)
    return made


def _change(
    tensor: onnx.TypeProto.Tensor, kind: str, symbols: list[str], rng: np.random.Generator
) -> None:
    dims = tensor.shape.dim
    tensor.shape.SetInParent()
    if kind == "rank":
        if dims and rng.integers(2):
            del dims[0]
        else:
            dims.add().dim_value = 3
        return
    if not dims:
        return
    dim = dims[int(rng.integers(len(dims)))]
    if kind == "size":
        dim.dim_value += 1
    elif kind in ("-1", "0"):
        dim.dim_value = int(kind)
    elif kind.startswith("symbol"):
        dim.dim_param = str(rng.choice(symbols)) if kind != "symbol" else "elsewhere"
