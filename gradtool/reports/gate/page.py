"""The verdicts in GitHub's Markdown, for a job summary or a comment."""

from __future__ import annotations

from gradtool.check.sentences import GateRun, explanation, headline
from gradtool.reports.gate.tables import grown_table, verdict_table
from gradtool.text.names import escape
from gradtool.text.table import markdown

MOST_BYTES = 900_000  # a job summary holds 1 MiB


def page(gate: GateRun) -> str:
    """A heading, the table, and a section for each failure as far as they fit."""
    parts = [f"### gradtool check: {escape(headline(gate), 'markdown')}\n"]
    if gate.judged:
        parts.append(markdown(verdict_table(gate.judged)))
    size, hidden = sum(map(_bytes, parts)), 0
    for judged in gate.failed:
        lines = [f"#### {escape(judged.case.name, 'markdown')}: {judged.verdict}", ""]
        lines += [f"- {escape(line, 'markdown')}" for line in explanation(judged)]
        section = "\n".join(lines) + "\n"
        table = grown_table(judged)
        if table is not None:
            section += "\n" + markdown(table)
        size += _bytes(section)
        if size > MOST_BYTES:
            hidden += 1
        else:
            parts.append(section)
    if hidden:
        parts.append(f"{hidden} more failed; the JSON output has all of them.\n")
    return "\n".join(parts)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
