"""The configuration to begin with: a case for each model, as TOML that explains itself."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from gradtool.check.config.cases import LONGEST
from gradtool.check.config.files import SHARED
from gradtool.check.config.settings import BASELINE
from gradtool.errors import SystemErrors, UsageError
from gradtool.io import contained
from gradtool.text import toml

RULE = "peak:1%+1MiB"
MOST_MODELS = 64
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[ \t]*\[")
_OURS = re.compile(r"[ \t]*\[\[?[ \t]*tool[ \t]*\.[ \t]*gradtool[ \t]*[.\]]")
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist"})


def models_below(folder: Path) -> list[str]:
    """The model files in a folder and below, as paths from it, in order.

    Hidden folders, environments and build outputs are left out.

    Raises:
        UsageError: there are too many to make a case of each.
    """
    found = []
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith("."))
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        here = Path(where).relative_to(folder)
        found += [(here / name).as_posix() for name in files if name.endswith(".onnx")]
    if len(found) > MOST_MODELS:
        raise UsageError(f"there are {len(found)} .onnx files here and below: name those to check")
    return sorted(found)


def case_names(models: Sequence[str]) -> list[str]:
    """A name for each model: that of its file, with its folders where two would be alike."""
    stems = [PurePosixPath(model).stem.casefold() for model in models]
    names: list[str] = []
    for model, stem in zip(models, stems, strict=True):
        path = PurePosixPath(model).with_suffix("")
        name = "-".join(path.parts) if stems.count(stem) > 1 else path.name
        names.append(_unlike(_plain(name), names))
    return names


def _plain(name: str) -> str:
    """A name as a case may have it: printable, and with room for a number."""
    shown = "".join(char if char.isprintable() else "-" for char in name)
    return shown.strip(" -")[: LONGEST - 8] or "case"


def _unlike(name: str, others: Sequence[str]) -> str:
    """The name, numbered if another one differs by capitals alone."""
    taken = {other.casefold() for other in others}
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each.casefold() not in taken)


def configuration(
    cases: Sequence[Mapping[str, Any]], left_out: Mapping[str, str], *, shared: bool
) -> str:
    """The TOML of cases; `left_out` says of other models why they have none."""
    prefix = "tool.gradtool." if shared else ""
    lines = [
        f"[{prefix}check]",
        "# A case fails where a rule is broken: the peak grew by more than 1 % and by more than",
        "# 1 MiB.  Other metrics: activations, gradients, flops, extra-flops, nodes, ...",
        f"fail-on = [{_toml(RULE)}]",
        "# A small file for each case; gradtool check --update writes them, git keeps them.",
        f"baseline = {_toml(BASELINE)}",
        *(_comment(f"{model} has no case: {why}") for model, why in left_out.items()),
    ]
    for case in cases:
        lines += ["", f"[[{prefix}case]]", *_case_lines(case)]
    return "\n".join(lines) + "\n"


def _case_lines(case: Mapping[str, Any]) -> Iterator[str]:
    yield f"name = {_toml(case['name'])}"
    yield f"model = {_toml(case['model'])}"
    if case["dims"]:
        sizes = ", ".join(f"{_key(name)} = {size}" for name, size in case["dims"].items())
        yield f"dims = {{ {sizes} }}  # a list, as in [8, 32], makes a case of each size"
    if case.get("set"):
        values = ", ".join(f"{_key(n)} = {json.dumps(value)}" for n, value in case["set"].items())
        yield f"set = {{ {values} }}  # inputs that are constants here"
    yield "# limit = { peak = '2GiB' }  # fails above it, whatever the baseline"
    other = "keep, sqrt, optimal, { budget = '60%' }, 'FILE.json'"
    yield f"plan = {_toml(case['plan'])}  # or {other}"


def added_to(text: str, section: str, path: Path) -> str:
    """A file with our section at its end, in place of any it has.

    The rest of it stays, byte for byte; added lines end like its last line.

    Raises:
        UsageError: the file has our tables in a form that cannot be taken out by lines.
    """
    kept = _without(text) if _ours(text) is not None else text
    ends = _line_end(kept or text)
    joined = kept + _gap(kept, ends) + section.replace("\n", ends)
    try:
        fits = _others(joined) == _others(text) and _ours(joined) == _ours(section)
    except tomllib.TOMLDecodeError:
        fits = False
    if not fits:
        raise UsageError(f"{path}: its [tool.gradtool] cannot be replaced: take it out by hand")
    return joined


def _line_end(text: str) -> str:
    """The line end of a text's last line; the text may hold both kinds."""
    ended = text.rpartition("\n")[0]
    return "\r\n" if ended.endswith("\r") else "\n"


def _gap(text: str, ends: str) -> str:
    """The line ends that give a text an empty last line; none if it has one, or no line at all."""
    if not text.endswith("\n"):
        return ends * 2 if text else ""
    return ends if text[:-1].rpartition("\n")[2].strip() else ""


def has_section(path: Path) -> bool:
    """Whether a file is there and is a configuration of ours.

    Raises:
        UsageError: it cannot be read or is no TOML.
    """
    return path.exists() and (path.name != SHARED or _ours(read(path)) is not None)


def read(path: Path) -> str:
    """The text of a TOML file, line ends as they are.

    Raises:
        UsageError: it cannot be read or is no TOML.
    """
    try:
        with SystemErrors(path), contained.opened(path, own=False) as file:
            text = file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is no TOML: {error}") from error
    toml.parsed(text, path)
    return text


def _ours(text: str) -> Any:
    tool = tomllib.loads(text).get("tool")
    return tool.get("gradtool") if isinstance(tool, dict) else None


def _others(text: str) -> dict[str, Any]:
    """The content of a file beside our tables."""
    document = tomllib.loads(text)
    tool = document.get("tool")
    if isinstance(tool, dict):
        tool.pop("gradtool", None)
        if not tool:
            del document["tool"]
    return document


def _without(text: str) -> str:
    """The lines of a file but for our tables; comments above the table that follows are its own."""
    kept: list[str] = []
    held: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if _HEADER.match(line):
            inside = bool(_OURS.match(line))
            kept += [] if inside else held
            held = []
        if not inside:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            held.append(line)
        else:
            held = []
    return "".join(kept)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _toml(name)


def _toml(text: str) -> str:
    """A text in quotes, as TOML has it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(text: str) -> str:
    from gradtool.text.names import escape

    return f"# {escape(' '.join(text.split()))}"
