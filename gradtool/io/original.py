"""The model as it was before anything was done to it, with other numbers in its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.lora import Adapter, merge
from gradtool.graph.metadata import SOURCE
from gradtool.graph.tensors import array
from gradtool.io import external, mapped, read

PATH = "gradtool.path"

Source = Path | bytes | onnx.ModelProto | ir.Model
Arrays = Mapping[str, np.ndarray[Any, Any]]


def source_of(meta: Mapping[str, Any]) -> Source:
    """Where a loaded model came from.

    Raises:
        UsageError: from standard input, or nobody knows.
    """
    found: Source | None = meta.get(SOURCE) or meta.get(PATH)
    if found is None:
        raise UsageError(
            "nothing tells which model this was made from: load it from a file, or by gradtool.load"
        )
    return found


def with_arrays(
    source: Source, arrays: Arrays, adapters: tuple[Adapter, ...] = ()
) -> tuple[ir.Model, list[str]]:
    """The model of a source, arrays put into tensors of their names; and the names it lacks.

    What `adapters` have among the arrays goes into their weights.  Nodes, opset and all that is
    not among the arrays are as they were.

    Raises:
        ModelError: the file is gone, or damaged.
        UsageError: a tensor has another type or shape than its array.
    """
    model = _read(source)
    tensors = {n: v for g in walk.graphs(model.graph) for n, v in g.initializers.items()}

    def weight_of(name: str) -> np.ndarray[Any, Any]:
        held = tensors[name].const_value if name in tensors else None
        if held is None:
            raise UsageError(f"the original model has no tensor called {name}, which is adapted")
        return array(held)

    lacking = []
    arrays = merge(adapters, arrays, weight_of)
    for name, new in arrays.items():
        if name in tensors:
            value = tensors[name]
            value.const_value = _tensor(name, new, value.const_value)
        else:
            lacking.append(name)
    return model, lacking


def has_data_file(model: ir.Model) -> bool:
    """Whether a model keeps tensors beside it."""
    return any(
        isinstance(value.const_value, ir.ExternalTensor)
        for graph in walk.graphs(model.graph)
        for value in graph.initializers.values()
    )


def _read(source: Source) -> ir.Model:
    if isinstance(source, ir.Model):
        return source.clone()
    if isinstance(source, Path):
        model = ir.serde.deserialize_model(read.from_file(source))
        mapped.attach(model, external.Folder(source).find)
        return model
    proto = read.from_bytes(source, "bytes") if isinstance(source, bytes) else source
    return ir.serde.deserialize_model(proto)


def _tensor(
    name: str, new: np.ndarray[Any, Any], old: ir.TensorProtocol | None
) -> ir.TensorProtocol:
    """An array as a tensor; the old one where that has these numbers already."""
    if old is not None:
        if tuple(old.shape) != new.shape or np.dtype(old.dtype.numpy()) != new.dtype:
            raise UsageError(
                f"{name!r} is {new.dtype}{list(new.shape)} here and "
                f"{old.dtype.numpy()}{list(old.shape)} in the original model: that has changed"
            )
        if not getattr(old, "absent", False) and array(old).tobytes() == new.tobytes():
            return old
    dtype = ir.DataType.from_numpy(new.dtype) if old is None else old.dtype
    return ir.Tensor(new, dtype=dtype, name=name)
