"""A kit in a folder: written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gradtool.arguments import checked
from gradtool.errors import UsageError
from gradtool.graph.tensors import Deferred
from gradtool.graph.training_info import TrainingInfo
from gradtool.io import folders, read, safetensors
from gradtool.io.original import Original
from gradtool.kit import manifest, state
from gradtool.kit.parts import Parts, parts_of
from gradtool.workloads.export import save
from gradtool.workloads.rewritten import Graph, model_of

PACKAGE = Path(__file__).parent / "js"  # an npm package
JAVASCRIPT = ("kit.mjs", "kit.d.ts", "package.json")


@dataclass(frozen=True)
class Kit:
    """A written kit: its `folder`, its `manifest`, and the bytes of all files (`size`)."""

    folder: Path
    manifest: dict[str, Any]
    size: int


@checked
def write_kit(
    graph: Graph,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    portable: bool = False,
    javascript: bool = False,
    stock: bool = False,
    say: Callable[[str], object] | None = None,
) -> Kit:
    """Write a kit for training a model with a stock runtime: a step, an evaluation, the state.

    Args:
        graph: a whole training step, made with an optimizer, perhaps planned by `recompute` or
            `mirror`.
        folder: where the kit lies; a model with a new head lies there as well, as original.onnx.
        force: replace a kit that is there; other files in its folder stay.
        portable: plain operators for places of maxima, as in `save`.
        javascript: the npm package `gradtool-kit` as well, which trains the kit in Node or a page.
        stock: check by onnxruntime as well where it is installed.
        say: is told of what a runtime does not do.

    Returns:
        The kit: `folder`, `manifest`, and `size` in bytes.

    Raises:
        UsageError: the graph updates nothing or was not loaded from a file, there is a folder
            already, or it cannot be written.
        MissingData: a weight is absent.
        InvalidResult: a model of the kit is not valid, and nothing was written.

    Example:
        step = gt.grad(gt.load("samples/cnn.onnx"), optimizer="sgd", train_mode=True)
        gt.write_kit(step, "kit").size  # bytes
    """
    target = require_folder(folder, force=force)
    parts = parts_of(model_of(graph))

    def fill(made: Path) -> Kit:
        """Write all files of the kit into a hidden folder."""
        for model, name in ((parts.step, manifest.STEP), (parts.evaluation, manifest.EVALUATION)):
            save(
                model, made / name, barrier=True, portable=portable, marks=False,
                defaults=False, stock=stock, say=say,
            )  # fmt: skip
        _write_state(parts, made)
        options = _options(made / manifest.STEP)
        source, beside = _source(parts, made, target)
        numbered = {"schema_version": manifest.SCHEMA_VERSION}
        told = {**numbered, **manifest.document(parts, source, beside, options)}
        text = json.dumps(told, indent=1, allow_nan=False, default=asdict)
        (made / manifest.FILE).write_text(f"{text}\n", encoding="ascii")
        for name in JAVASCRIPT if javascript else ():
            (made / name).write_bytes((PACKAGE / name).read_bytes())
        size = sum(each.stat().st_size for each in made.rglob("*") if each.is_file())
        return Kit(Path(folder), json.loads(text), size)

    return folders.put(target, fill, _is_of_a_kit)


def require_folder(folder: str | os.PathLike[str], *, force: bool) -> Path:
    """The real folder to write.

    Raises:
        UsageError: it exists without `force`, or is no kit, or cannot be written.
    """
    target = folders.target(folder, force=force)
    if target.exists() and any(target.iterdir()) and not (target / manifest.FILE).is_file():
        raise UsageError(f"{folder}: is a folder of something else than a kit; name another one")
    return target


def _is_of_a_kit(name: str) -> bool:
    """Whether a file name is one of a kit."""
    models = (manifest.STEP, manifest.EVALUATION, manifest.ORIGINAL)
    own = (manifest.FILE, *models, state.FILE, state.FOLDER)
    data = tuple(f"{model}." for model in models)
    return name in own or (name.startswith(data) and name.endswith(".data"))


def _source(parts: Parts, made: Path, target: Path) -> tuple[Path, Path]:
    """The file of a kit's model, and the base folder of its path.

    A model with a new head, which is in no file as yet, is written into the kit.
    """
    if isinstance(parts.source, Path):
        return parts.source, target
    return Original(parts.source).save(made / manifest.ORIGINAL)[0], made


def _write_state(parts: Parts, made: Path) -> None:
    arrays = {tensor.name: Deferred(tensor.first) for tensor in parts.state}
    (made / state.FOLDER).mkdir()
    names = state.file_names([tensor.name for tensor in parts.state])
    for each, file in zip(arrays.values(), names, strict=True):
        (made / state.FOLDER / file).write_bytes(safetensors.little_endian(each))
    safetensors.save(made / state.FILE, arrays)


def _options(step: Path) -> dict[str, object]:
    """The options of stock onnxruntime in a written step's metadata."""
    props = {entry.key: entry.value for entry in read.from_file(step).metadata_props}
    return dict(TrainingInfo.parse(props).ort_options)
