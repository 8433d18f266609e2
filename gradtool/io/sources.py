"""Input files, which no output may replace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gradtool.errors import ModelError, UsageError
from gradtool.io import external, read, walk
from gradtool.io.atomic import MODELS

Identity = tuple[int, int]  # device and inode


def require_apart(
    outputs: Mapping[str, str], inputs: Iterable[str], *, replaced: str | None = None
) -> None:
    """Refuse an output that is an input, one of its `.npy` files, or the data of an input model.

    Outputs are by their flag.  Files are compared, not names: symbolic and hard links lead to the
    same one.  The output called `replaced` may be a model that is read.

    Raises:
        UsageError: naming both.
    """
    there = {flag: found for flag, path in outputs.items() if (found := _identity(path))}
    if not there:
        return
    for path in inputs:
        for file, what in _files(path):
            found = _identity(file)
            for flag, identity in there.items():
                is_model = file == path and Path(path).suffix in MODELS
                if identity == found and not (flag == replaced and is_model):
                    raise UsageError(
                        f"{flag} {outputs[flag]}: is {what}, which is read: name another file"
                    )


def _identity(path: str) -> Identity | None:
    """The identity of a path's file; None if it is no regular file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a path may be any text
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if Path(path).is_file() else None


def _files(path: str) -> Iterator[tuple[str, str]]:
    """The files read with a path, and the role of each."""
    if Path(path).is_dir():
        from gradtool.io import genai

        if genai.is_folder(Path(path)):
            with suppress(ModelError):  # whoever opens it tells the error
                yield from _files(str(genai.decoder(Path(path))))
            return
        yield from ((str(file), f"one of the files of {path}") for file in Path(path).glob("*.npy"))
        return
    yield path, f"the file {path}"
    if Path(path).suffix not in MODELS or not Path(path).is_file():
        return
    try:
        tensors = list(walk.tensors(read.from_file(Path(path))))
        locations = [external.reference(t, w).location for t, w in tensors if t.external_data]
    except ModelError:
        return  # whoever opens it tells the error
    for location in dict.fromkeys(locations):
        yield str(Path(path).absolute().parent / location), f"the data of {path}"
