"""Trained weights written back into the source model of a kit."""

from __future__ import annotations

import os
from pathlib import Path

from gradtool.arguments import checked
from gradtool.errors import UsageError
from gradtool.io import contained, original
from gradtool.kit import manifest, state
from gradtool.text.words import some
from gradtool.workloads import lora_files


@checked
def merge_kit(
    folder: str | os.PathLike[str],
    trained: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    model: str | os.PathLike[str] | None = None,
    adapter: bool = False,
    force: bool = False,
) -> list[tuple[Path, int]]:
    """Write the original model with the weights of a state; the paths and bytes of files.

    Nodes, opset, names and metadata of the file stay, running statistics are weights as well, and
    adapters go into theirs.

    Args:
        folder: the kit.
        trained: a state: a safetensors file or a folder of binaries, named as those of the kit.
        path: the file to write.
        model: where the original file is now; by default where it was.
        adapter: write adapters as a file of their own (see `gradtool.workloads.lora_files`).
        force: replace a file that is there.

    Raises:
        MissingData: the state lacks a weight.
        UsageError: the folder is no kit, the original is gone or another one, the state is not of
            this kit, or the output exists without `force` or cannot be written.

    Example:
        kit = gt.write_kit(gt.grad(gt.load("samples/cnn.onnx"), optimizer="sgd"), "cnn.kit")
        gt.merge_kit(kit.folder, kit.folder / "state.safetensors", "cnn.merged.onnx")
    """
    told = manifest.read(Path(folder))
    source = Path(model) if model is not None else told.original
    if not source.is_file():
        raise UsageError(f"{source}: the model of the kit is not there; say where with --model")
    if contained.digest(source) != told.sha256:
        raise UsageError(f"{source}: is another model than the one {folder} was made of")
    arrays = state.read(Path(trained), told.entries)
    if adapter:
        return lora_files.write(source.resolve(), told.adapters, arrays, path, force=force)
    merged = original.Original(source.resolve())
    lacking = merged.put(arrays, told.adapters)
    lacking = merged.put_at({name: arrays[name] for name in lacking}, told.locations)
    if lacking:
        raise UsageError(f"{source}: the model has no tensor called {some(lacking)}")
    return [merged.save(path, force=force)]
