"""Trained weights written back into the file that a kit was made of."""

from __future__ import annotations

import os
from pathlib import Path

from gradtool import io
from gradtool.errors import UsageError
from gradtool.io import original
from gradtool.kit import manifest, state
from gradtool.text.words import some


def merge_kit(
    folder: str | os.PathLike[str],
    trained: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> tuple[Path, int]:
    """Write the original model with the weights of a state; its path and bytes.

    `trained` is a safetensors file or a folder of binaries, named as those of the kit.  `model`
    says where the original file is now; by default where it was.  Nodes, opset, names and metadata
    of the file stay, running statistics are weights as well.

    Raises:
        MissingData: the state lacks a weight.
        UsageError: the folder is no kit, the original is gone or another one, the state is not of
            this kit, or the output exists without `force` or cannot be written.
    """
    told = manifest.read(Path(folder))
    source = Path(model) if model is not None else told.original
    if not source.is_file():
        raise UsageError(f"{source}: the model of the kit is not there; say where with --model")
    if manifest.digest(source) != told.sha256:
        raise UsageError(f"{source}: is another model than the one {folder} was made of")
    arrays = state.read(Path(trained), told.entries)
    weights = {e["name"] for e in told.entries if e["role"] != "optimizer"}
    merged, lacking = original.with_arrays(
        source.resolve(), {n: a for n, a in arrays.items() if n in weights}
    )
    if lacking:
        raise UsageError(f"{source}: the model has no tensor called {some(lacking)}")
    beside = original.has_data_file(merged)
    return io.save(
        merged, path, force=force, external_data="always" if beside else "auto", own=True
    )
