"""Rehearsal of a training's last write, before its first step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from gradtool.graph.tensors import array
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import atomic, original
from gradtool.session.held import changing_weights
from gradtool.workloads import lora_files


def unmergeable(training: ir.Model) -> list[str]:
    """The adapted weights of few bits, into which no adapter can be merged.

    Raises:
        ModelError: the file that the model came from is gone, or damaged.
    """
    adapters = TrainingInfo.of(training).lora
    if not adapters:
        return []
    return original.Original(original.source_of(training.meta)).coded(adapters)


def rehearse(
    training: ir.Model,
    models: Mapping[str, str | os.PathLike[str]],
    *,
    files: Mapping[str, str | os.PathLike[str]] | None = None,
) -> None:
    """Do all that writing the results takes but write them.

    `models` are the paths of results by what they hold, `lora` the model with a place for adapters;
    other `files` are small.

    Raises:
        UsageError: the file that the model came from lacks a weight that is trained or is gone, an
            adapter can have no place in it, or a path cannot be written.
        InvalidResult: the model with adapters would not be valid.
    """
    source, info = original.source_of(training.meta), TrainingInfo.of(training)
    file = original.Original(source)
    weights = changing_weights(training)
    kinds = {name: original.kind_of(value) for name, value in weights.items()}
    file.require(kinds, info.lora, info.locations)
    sizes = {Path(path): file.size for path in models.values()}
    sizes |= dict.fromkeys(map(Path, (files or {}).values()), 0)
    if "lora" in models:
        arrays = {n: array(v.const_value) for n, v in weights.items() if v.const_value is not None}
        lora_files.rehearse(source, info.lora, arrays)
        sizes[lora_files.adapter_path(models["lora"])] = sum(
            arrays[name].nbytes for each in info.lora for name in each.names
        )
    atomic.rehearse(sizes)
