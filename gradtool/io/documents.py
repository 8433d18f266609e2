"""JSON files of ours: read without trust, written whole."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeGuard

from gradtool.errors import SystemErrors, UsageError
from gradtool.io import atomic, contained

_MOST_BYTES = 1 << 28


def read_document(
    path: str | os.PathLike[str], *versions: int, own: bool = False
) -> dict[str, Any]:
    """The object in a JSON file of one of some versions, if any; errors about others name the last.

    Its name may be our `own`: no link is followed there.

    Raises:
        UsageError: the file is missing, too large, no JSON object, or of another version.
    """
    try:
        with (
            SystemErrors(path),
            contained.opened(Path(path)) if own else open(path, "rb") as file,  # noqa: PTH123
        ):
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(f"{path}: is too large: more than {_MOST_BYTES} bytes")
        document = json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise UsageError(f"{path}: is nested too deeply") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is no JSON: {error}") from error
    except ValueError as error:  # by int(), of too many digits
        raise UsageError(f"{path}: is no JSON to be read: a number has too many digits") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path}: is no JSON object")
    found = document.get("schema_version")
    if versions and (found not in versions or isinstance(found, bool)):
        other = f"; it has {found}, of another gradtool" if is_whole(found) else ""
        raise UsageError(f"{path}: has no schema_version {versions[-1]}{other}")
    return document


def write_document(
    document: Mapping[str, object],
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    own: bool = False,
) -> int:
    """Write JSON, whole or not at all, through no link if its name is our `own`; returns its bytes.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.
    """
    text = json.dumps(document, indent=1, allow_nan=False, default=asdict)
    data = f"{text}\n".encode("ascii")
    place = atomic.target(path, force=force, own=own)
    atomic.write([atomic.Output(place, lambda file: file.write(data))])
    return len(data)


def is_text(found: object) -> TypeGuard[str]:
    """Whether a JSON value is text."""
    return isinstance(found, str)


def is_number(found: object) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    if isinstance(found, int):
        return not isinstance(found, bool) and abs(found) < 1 << 63
    return isinstance(found, float) and math.isfinite(found)


def is_whole(found: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number of 64 bits."""
    return isinstance(found, int) and is_number(found)
