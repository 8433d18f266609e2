"""The files of external data beside a model."""

from __future__ import annotations

from pathlib import Path

from gradtool.errors import ModelError


def locations(model: Path) -> list[str]:
    """Paths from the model's folder, each once; none where the model cannot be read.

    No path leads out of the folder.
    """
    from gradtool.io import external, read, walk

    try:
        proto = read.from_file(model)
        found = [
            external.reference(tensor, where).location
            for tensor, where in walk.tensors(proto)
            if tensor.external_data
        ]
    except ModelError:
        return []
    return list(dict.fromkeys(found))
