"""The seconds of each node of a training step, and their file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, TypedDict, get_args

from gradtool.errors import UsageError
from gradtool.io.documents import is_number, is_text, read_document, write_document
from gradtool.operators.kernel_sets import Kernels
from gradtool.text.json_schema import Amount, Positive

SCHEMA_VERSION = 1
REPEATS = 5
_LONGEST = 1e6  # seconds of one node that a file may claim


@dataclass(frozen=True, slots=True)
class Timed:
    """The operator of a node and the seconds of one run of it."""

    op: str
    seconds: Annotated[Amount, "The median."]


class ProfileDocument(TypedDict):
    """The time of every running node."""

    kernels: NotRequired[
        Annotated[
            Kernels | None,
            "The measured kernels; exact: native ones with exact convolutions. "
            "Older files do not say.",
        ]
    ]
    repeats: Positive
    nodes: Annotated[dict[str, Timed], "By the name of the node."]


@dataclass(frozen=True)
class Profile:
    """The time of every running node, by its name; the median over `repeats` steps.

    `kernels` are those that were measured; None where a file does not say so.
    """

    nodes: Mapping[str, Timed]
    repeats: int
    kernels: Kernels | None = "numpy"


def save(found: Profile, path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write a profile as JSON.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.
    """
    document: ProfileDocument = {
        "kernels": found.kernels, "repeats": found.repeats, "nodes": dict(found.nodes),
    }  # fmt: skip
    write_document({"schema_version": SCHEMA_VERSION, **document}, path, force=force)


def load(path: str | os.PathLike[str]) -> Profile:
    """Read a profile. Raises UsageError if the file cannot be read or is no profile."""
    document = read_document(path, SCHEMA_VERSION)
    nodes, repeats = document.get("nodes"), document.get("repeats", 1)
    if not isinstance(nodes, dict) or not is_number(repeats):
        raise UsageError(f"{path}: is no profile: write one with gradtool run --profile FILE")
    kernels = document.get("kernels")
    if kernels not in (None, *get_args(Kernels)):
        known = ", ".join(get_args(Kernels))
        raise UsageError(f"{path}: is no profile: its kernels are none of {known}")
    timed = {name: _timed(path, name, found) for name, found in nodes.items()}
    return Profile(MappingProxyType(timed), int(repeats), kernels)


def _timed(path: str | os.PathLike[str], name: str, found: Any) -> Timed:
    if isinstance(found, dict):
        op, seconds = found.get("op"), found.get("seconds")
        if is_text(op) and is_number(seconds) and 0 <= seconds <= _LONGEST:
            return Timed(op, float(seconds))
    raise UsageError(f"{path}: node {name!r} needs an op and its seconds, a number from 0 on")
