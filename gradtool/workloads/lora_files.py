"""Adapters as files of their own: the model with a place for them, and what goes there.

`MODEL.lora.onnx` is the original file with a branch beside each adapted weight, whose tensors are
inputs that are zero by default: without an adapter it computes what the original does.  The
`.onnx_adapter` beside it is what stock onnxruntime's `LoraAdapter` loads into it.
"""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from gradtool import io
from gradtool.errors import UsageError
from gradtool.graph.lora import Adapter
from gradtool.io import atomic, onnx_adapter, original
from gradtool.io.read import Source
from gradtool.io.save import check
from gradtool.passes.lora import attach_zeros
from gradtool.text.words import some

MODEL_SUFFIX = ".lora.onnx"


def adapter_path(path: str | os.PathLike[str]) -> Path:
    """The path of the adapter beside a written model."""
    return Path(path).with_suffix(onnx_adapter.SUFFIX)


def write(
    source: Source,
    adapters: tuple[Adapter, ...],
    arrays: original.Arrays,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
) -> list[tuple[Path, int]]:
    """Write both files, whole or not at all; paths and bytes, the model's first.

    `arrays` hold the adapters, and other tensors that were trained as well, which the model gets.

    Raises:
        UsageError: there are no adapters, a weight is read otherwise than by products in the file,
            or an output exists without `force`, or cannot be written.
    """
    model, beside, writer = _made(source, adapters, arrays)
    output = atomic.Output(atomic.target(adapter_path(path), force=force), writer.write)
    written = io.save(
        model, path, force=force, external_data="always" if beside else "auto", own=True,
        beside=[output],
    )  # fmt: skip
    return [written, (adapter_path(path), writer.size)]


def rehearse(source: Source, adapters: tuple[Adapter, ...], arrays: original.Arrays) -> None:
    """Make all of both files, check the model, and write nothing.

    Raises:
        UsageError: as `write`.
        InvalidResult: the model is not valid.
    """
    check(_made(source, adapters, arrays)[0])


def _made(
    source: Source, adapters: tuple[Adapter, ...], arrays: original.Arrays
) -> tuple[ir.Model, bool, onnx_adapter.Writer]:
    """The model with a place for adapters, whether it has tensors beside it, and the adapters."""
    if not adapters:
        raise UsageError("no adapters to write: train with --lora RANK")
    names = [name for adapter in adapters for name in adapter.names]
    held = {name: arrays[name] for name in names}
    file = original.Original(source)
    lacking = file.put({name: array for name, array in arrays.items() if name not in held})
    if lacking:
        raise UsageError(f"the original model has no tensor called {some(lacking)}")
    beside = file.has_data_file()
    model = file.model([adapter.weight for adapter in adapters])
    attach_zeros(model, adapters, {name: array.shape for name, array in held.items()})
    for name in names:
        dtype = model.graph.initializers[name].dtype
        assert dtype is not None  # noqa: S101 - an initializer has a type
        held[name] = original.narrowed(name, held[name], dtype)
    return model, beside, onnx_adapter.writer(held)
