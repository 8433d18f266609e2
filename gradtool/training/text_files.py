"""Texts in files, as requests to a tokenizer: plain ones, prompts, and conversations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from gradtool.errors import UsageError
from gradtool.io.stored import opened
from gradtool.training.text_tables import parsed_object
from gradtool.training.tokenizing import MARKS, MOST_CHARACTERS

Form = Literal["plain", "text", "prompt", "messages"]
PLAIN, LINES = ".txt", (".jsonl", ".ndjson")
KEYS: Mapping[Form, tuple[str, ...]] = {
    "messages": ("messages",), "prompt": ("prompt", "completion"), "text": ("text",),
}  # fmt: skip
_PIECE = 1 << 20  # bytes of a plain text that are read at once
_LONGEST = 1 << 24  # bytes of a line
Request = dict[str, Any]


@dataclass(frozen=True)
class TextFile:
    """A file of texts in one of the forms; `others` are further keys of its first line."""

    path: Path
    form: Form
    others: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: Path) -> TextFile | None:
        """A file that holds texts by its name, or by the keys of its first line; else None."""
        if path.suffix == PLAIN:
            return cls(path, "plain")
        if path.suffix not in LINES:
            return None
        try:
            with opened(path) as file:
                first = next((row for _, row in _objects(file)), {})
        except (UsageError, RecursionError, ValueError):
            return None  # the reader of tables tells what is wrong
        is_text = {form: all(_may_be(form, first.get(key)) for key in keys)
                   for form, keys in KEYS.items()}  # fmt: skip
        form = next((form for form, holds in is_text.items() if holds), None)
        if form is None:
            return None
        return cls(path, form, tuple(key for key in first if key not in KEYS[form]))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that a text is made of."""
        return KEYS.get(self.form, ())

    def requests(self, *, masks: bool) -> Iterator[tuple[int, Request, dict[str, Any]]]:
        """Requests, each with the number of its line, and what else is in that.

        Raises:
            UsageError: a line is none of this form; file and line are named.
        """
        with opened(self.path) as file:
            if self.form == "plain":
                for number, text in _pieces(self.path, file):
                    yield number, {"text": text, "adds": False, "ends": False}, {}
                return
            number = 0
            try:
                for number, row in _objects(file):
                    request = self._request(number, row, masks=masks)
                    rest = {n: each for n, each in row.items() if n not in (*self.keys, "tools")}
                    yield number, request, rest
            except UsageError as error:
                raise UsageError(f"{self.path}: {error}") from error
            except (RecursionError, ValueError) as error:
                said = "is nested without end" if isinstance(error, RecursionError) else str(error)
                raise UsageError(f"{self.path}: line {number + 1}: {said}") from error

    def _request(self, number: int, row: Mapping[str, Any], *, masks: bool) -> Request:
        for key in self.keys:
            if key not in row:
                raise UsageError(f"line {number} has no {key!r}, the first has")
        if self.form == "messages":
            messages = row["messages"]
            _require_messages(number, messages)
            return {
                "messages": messages, "tools": row.get("tools"), "masks": masks,
                "adds": False, "ends": False,
            }  # fmt: skip
        texts = [row[key] for key in self.keys]
        for key, text in zip(self.keys, texts, strict=True):
            _require_text(text, f"line {number}: {key!r}")
        whole = "".join(texts)
        spans = [(len(whole) - len(texts[-1]), len(whole))] if masks else None
        return {"text": whole, "spans": spans, "adds": True, "ends": True}


def _may_be(form: Form, given: Any) -> bool:
    return isinstance(given, list if form == "messages" else str)


def _require_text(text: Any, what: str) -> None:
    """Refuse what is no text, or what a template could not be told apart from its marks."""
    if not isinstance(text, str):
        raise UsageError(f"{what} is no text")
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{what} has more than {MOST_CHARACTERS} characters")
    mark = next((each for each in MARKS if each in text), None)
    if mark is not None:
        raise UsageError(f"{what} holds U+{ord(mark):04X}, which is no character")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} holds half of a surrogate pair, which is no character") from error


def _require_messages(number: int, messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise UsageError(f"line {number}: 'messages' is no list of messages")
    for turn, each in enumerate(messages):
        what = f"line {number}: message {turn}"
        if not isinstance(each, dict):
            raise UsageError(f"{what} is no object with role and content")
        if not isinstance(each.get("role"), str):
            raise UsageError(f"{what} has no role")
        if each.get("content") is None and each.get("tool_calls"):
            continue
        if "content" not in each:
            raise UsageError(f"{what} has no content")
        _require_text(each["content"], f"{what}: its content")


def _objects(file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of the lines of a file, with their numbers; blank lines are left out."""
    for number, line in _lines(file):
        row = parsed_object(number, line)
        if row is not None:
            yield number, row


def _lines(file: BinaryIO) -> Iterator[tuple[int, str]]:
    number = 0
    while data := file.readline(_LONGEST):
        number += 1
        if len(data) == _LONGEST:
            raise UsageError(f"line {number} has more than {_LONGEST} bytes")
        yield number, _decoded(data, number)


def _decoded(data: bytes, number: int) -> str:
    """Text of a line, or of several from one on; a mark at the beginning of a file is no text."""
    try:
        return data.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = number + data[: error.start].count(b"\n")
        raise UsageError(f"line {line} is not UTF-8 text") from error


def _pieces(path: Path, file: BinaryIO) -> Iterator[tuple[int, str]]:
    """A plain text in pieces of whole lines, each with the number of its first line."""
    number = 1
    while data := file.read(_PIECE):
        data += file.readline(_LONGEST)
        if not data.endswith(b"\n") and len(data) >= _LONGEST:
            raise UsageError(f"{path}: line {number} or a later one has more than {_LONGEST} bytes")
        try:
            yield number, _decoded(data, number)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        number += data.count(b"\n")
