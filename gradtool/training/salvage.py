"""Trained weights kept in the nearest form where the asked one cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError
from gradtool.io import safetensors


def salvage(
    name: str, arrays: Mapping[str, np.ndarray[Any, Any]], folders: Iterable[Path]
) -> Path | None:
    """Write arrays as `NAME.safetensors` into the first folder that takes them; where it is.

    Nothing that is there is overwritten: the name gets a number.  The last folder that is tried is
    the system's for temporary files; None if not even that takes them.
    """
    for folder in (*folders, Path(tempfile.gettempdir())):
        number = 0
        while True:
            path = folder / f"{name}{f'-{number}' if number else ''}{safetensors.SUFFIX}"
            if not os.path.lexists(path):
                break
            number += 1
        try:
            safetensors.save(path, arrays)
        except (GradtoolError, OSError):
            continue
        return path
    return None
