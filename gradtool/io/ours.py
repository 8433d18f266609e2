"""Model files written by gradtool, told by their metadata: they can be written again."""

from __future__ import annotations

import os
from pathlib import Path

from gradtool.graph.training_info import TrainingInfo
from gradtool.io import contained


def is_ours(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a model with gradients written by gradtool.

    Its metadata lies in it as plain text, in the two fields of an entry of protobuf.
    """
    (key,) = (text.encode() for text in TrainingInfo(gradients={}).texts())
    entry = bytes([0x0A, len(key)]) + key + b"\x12"
    written = b'"' + key + b'":'
    place = Path(path)
    try:
        with contained.opened(place, own=False) as file:
            return contained.holds(file, written if place.suffix == ".onnxtxt" else entry)
    except (OSError, ValueError):
        return False


def is_replaceable(path: str, source: str) -> bool:
    """Whether an output may overwrite the present file: one of ours that is not read now."""
    try:
        same = Path(path).exists() and Path(source).exists() and Path(path).samefile(source)
    except (OSError, ValueError):
        return False
    return not same and is_ours(path)
