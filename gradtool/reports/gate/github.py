"""The verdicts as annotations: workflow commands that a GitHub runner reads from the log.

Source: docs.github.com, "Workflow commands for GitHub Actions": `%`, CR and LF are escaped in the
message, `:` and `,` in properties too.
"""

from __future__ import annotations

from gradtool.check.sentences import GateRun, culprits, explanation
from gradtool.check.verdicts import Judged
from gradtool.text.names import escape, shorten

MOST_CHARACTERS = 4000  # of a message


def github(gate: GateRun) -> str:
    """A line for each failure, at the line of its case in the configuration; else nothing."""
    return "".join(f"{_annotation(gate, judged)}\n" for judged in gate.failed)


def _annotation(gate: GateRun, judged: Judged) -> str:
    lines = [*explanation(judged), culprits(judged)]
    message = shorten("; ".join(line for line in lines if line), MOST_CHARACTERS)
    title = f"gradtool check: {judged.case.name}: {judged.verdict}"
    where = f"file={_property(gate.config)},line={judged.case.line},title={_property(title)}"
    return f"::error {where}::{_data(message)}"


def _data(text: str) -> str:
    return escape(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
