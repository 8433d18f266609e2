"""The HTML report: one file that needs no network, and that no name in a model can command.

Names are embedded as JSON in which no tag can end or begin, and are set as text only.  A content
security policy lets the page's own script and style run, known by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from gradtool.reports.page_data import Page, page_data

STYLE = ("report.css",)
SCRIPT = (
    "format.js", "data.js", "dom.js", "chart.js", "tensors.js", "frontier.js", "page.js",
)  # fmt: skip

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_MARKUP = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})


def html_page(page: Page) -> str:
    """The report as the text of an HTML file: the same page gives the same text."""
    data = page_data(page)
    style = joined(STYLE)
    script = f'"use strict";\n(() => {{\n{joined(SCRIPT)}}})();\n'
    slots = {
        "policy": f"default-src 'none'; style-src {hashed(style)}; script-src {hashed(script)}; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape(data["model"]),
        "style": style,
        "script": script,
        "data": embedded(data),
    }
    return filled("report.html", slots)


def filled(name: str, slots: Mapping[str, str]) -> str:
    """A page of the assets with its slots filled in."""
    return _SLOT.sub(lambda slot: slots[slot[1]], _asset(name))


def embedded(document: Any) -> str:
    """JSON in ASCII, safe in a script element: `<`, `>` and `&` are written as codes."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).translate(_MARKUP)


def hashed(text: str) -> str:
    """A text as a content security policy names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def joined(names: tuple[str, ...]) -> str:
    """Several of the assets, one after the other."""
    return "".join(map(_asset, names))


def _asset(name: str) -> str:
    return (resources.files("gradtool.reports") / "assets" / name).read_text(encoding="utf-8")
