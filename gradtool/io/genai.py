"""Folders of onnxruntime-genai: a decoder, its tokenizer, and a configuration that names both.

Source: the format of `genai_config.json`, onnxruntime-genai 0.18 (`src/config.cpp`).
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from gradtool.errors import ModelError, SystemErrors
from gradtool.io import contained

CONFIG = "genai_config.json"
_MOST_BYTES = 1 << 24
_OTHERS = ("vision", "speech", "embedding", "encoder")  # parts of what is no model of text


def is_folder(path: Path) -> bool:
    """Whether a path is a folder with a configuration of onnxruntime-genai."""
    return path.is_dir() and (path / CONFIG).is_file()


def decoder(folder: Path) -> Path:
    """The file of the decoder in a folder.

    Raises:
        ModelError: the configuration names none, or one that is not in the folder.
    """
    where = f"{folder / CONFIG}"
    found = _section(_section(configuration(folder), "model", where), "decoder", where)
    name = found.get("filename")
    if not isinstance(name, str):
        several = ": it is a pipeline of several files" if "pipeline" in found else ""
        raise ModelError(f"{where}: names no file of a decoder{several}; name a model file")
    parts = PurePosixPath(name.replace("\\", "/")).parts
    is_plain = name.isprintable() and parts and ":" not in parts[0]
    if not is_plain or ".." in parts or parts[0] == "/":
        raise ModelError(f"{where}: the decoder {name!r} is no plain path inside the folder")
    path = folder.joinpath(*parts)
    inside = (folder.resolve(), (folder / CONFIG).resolve().parent)  # the latter: caches of hubs
    if not any(path.resolve().is_relative_to(each) for each in inside):
        raise ModelError(
            f"{where}: the decoder {name!r} leads out of the folder: to {path.resolve()}"
        )
    return path


def scores(folder: Path) -> str:
    """The output of the decoder that scores the next token, of a model of text alone.

    Raises:
        ModelError: the configuration is none, or has other parts.
    """
    where = str(folder / CONFIG)
    model = _section(configuration(folder), "model", where)
    other = next((name for name in _OTHERS if name in model), None)
    if other is not None:
        raise ModelError(
            f"{where}: has {other!r} beside the decoder, and folders of text alone are trained: "
            "name the model file in it"
        )
    outputs = _section(model, "decoder", where).get("outputs")
    name = outputs.get("logits") if isinstance(outputs, dict) else None
    return name if isinstance(name, str) and name else "logits"


def context(folder: Path) -> int | None:
    """The tokens that the model of a folder takes; None where nothing says it.

    Raises:
        ModelError: the configuration is none.
    """
    if not is_folder(folder):
        return None
    model = _section(configuration(folder), "model", str(folder / CONFIG))
    found = model.get("context_length")
    return found if isinstance(found, int) and 0 < found < 1 << 30 else None


def configuration(folder: Path) -> dict[str, Any]:
    """The configuration of a folder.

    Raises:
        ModelError: it cannot be read, or is no JSON object.
    """
    path = folder / CONFIG
    try:
        with SystemErrors(path, kind=ModelError), contained.opened(path, own=False) as file:
            data = file.read(_MOST_BYTES + 1)
        found = json.loads(data.decode("utf-8-sig")) if len(data) <= _MOST_BYTES else None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: is no JSON: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: is no JSON object of at most {_MOST_BYTES} bytes")
    return found


def _section(found: dict[str, Any], name: str, where: str) -> dict[str, Any]:
    inner = found.get(name)
    if not isinstance(inner, dict):
        raise ModelError(f"{where}: has no {name!r}")
    return inner
