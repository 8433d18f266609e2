"""Names are data: a tensor's name in a file is shown, never obeyed.

A terminal obeys control characters, a reader is misled by bidirectional ones, a continuous
integration runner obeys `::error::` at the start of a line and `##[error]` anywhere in it, a
spreadsheet computes `=1+1`, and Markdown and HTML have their own punctuation.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from dataclasses import asdict
from typing import Any, Literal

Medium = Literal["terminal", "markdown", "csv", "json", "html"]

# Control, format (bidirectional and zero-width), surrogate, private, unassigned, line separators.
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
PLAIN = str.maketrans(
    {
        "…": "...",
        "×": "x",
        "·": "*",
        "µ": "u",
        "–": "-",
        "─": "-",
        "━": "=",
        "→": "->",
        "²": "^2",
        "³": "^3",
    }
)

_RUNNER = re.compile(r"(?:(?<=\s)|^):(?=:)|(?<=#)#(?=\w*\[)")
_MARKDOWN = re.compile(r"[|`<>&*\[\]~$]|\\(?![0-9A-Za-z])|(?<![^\W_])_|_(?![^\W_])|:(?=//)")
_CLAUSES = re.compile(r" {2,}")
_WORDS = re.compile(r" (?!(?:[KMGTPE]i?)?B\b|%)")
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]")


def escape(name: str, medium: Medium = "terminal") -> str:
    r"""`name` made inert and visible: an escape character is written `\x1b`.

    Escaping a name already escaped for a terminal changes nothing. For CSV it is the cell before it
    is quoted; for JSON it is the text between the quotes, and reads back as `name`.
    """
    if medium == "json":
        return json_text(name)[1:-1]
    text = _RUNNER.sub(_code, name)
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(char) for char in text)
    if medium == "markdown":
        return _MARKDOWN.sub(_entity, text).replace("@", "@&#8203;")
    if medium == "html":
        return html.escape(text)
    if medium == "csv" and _FORMULA.match(text):
        return f"'{text}"
    return text


def shorten(name: str, width: int, *, ellipsis: str = "…") -> str:
    """`name` in at most `width` terminal cells, its middle left out if it is longer."""
    if name.isascii() and len(name) <= width:
        return name
    from rich.cells import cell_len

    if len(name) <= width and cell_len(name) <= width:
        return name
    room = width - len(ellipsis)
    if room <= 0:
        return ellipsis[: max(width, 0)]
    head, tail = room - room // 2, room // 2
    while True:
        short = name[:head] + ellipsis + name[len(name) - tail :]
        if cell_len(short) <= width:
            return short
        head, tail = (head - 1, tail) if head > tail else (head, tail - 1)


def wrapped(line: str, width: int) -> list[str]:
    """`line` in lines of at most `width` cells, broken between clauses, else between words.

    Clauses are two or more blanks apart.  A longer word stays whole, and so does a number with
    its unit.
    """
    if line.isascii() and len(line) <= width:
        return [line]
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    lines = [indent]

    def put(text: str, gap: str, further: str) -> None:
        if not lines[-1].strip():
            lines[-1] += text
        elif cell_len(lines[-1] + gap + text) <= width:
            lines[-1] += gap + text
        else:
            lines.append(indent + further + text)

    for clause in _CLAUSES.split(line.strip()):
        whole = cell_len(indent + clause) <= width
        first, *rest = [clause] if whole else _WORDS.split(clause)
        put(first, "  ", "")
        for word in rest:
            put(word, " ", " ")
    return lines


def fit(text: str, encoding: str) -> str:
    r"""`text` in characters that `encoding` has: `…` becomes `...`, others `\u4e2d`."""
    if carries(encoding, text):
        return text
    try:
        return text.translate(PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return fit(text, "ascii")


def carries(encoding: str, text: str) -> bool:
    """Whether `encoding` is known and has every character of `text`."""
    try:
        text.encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def json_text(document: Any) -> str:
    """`document` as ASCII JSON, with exact names and without commands for a runner."""
    text = json.dumps(document, indent=2, ensure_ascii=True, allow_nan=False, default=asdict)
    return text.replace("##", "#\\u0023").replace("\x7f", "\\u007f")


def _visible(char: str) -> str:
    if unicodedata.category(char) not in INVISIBLE:
        return char
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _code(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]):02x}"


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match[0])};"
