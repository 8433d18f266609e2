"""Verdicts of the gate for people and for machines: a table, JSON, Markdown, and formats of CI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gradtool.check.sentences import GateRun
from gradtool.reports.gate.gate_json import gate_json
from gradtool.reports.gate.github import github
from gradtool.reports.gate.junit import junit
from gradtool.reports.gate.page import page
from gradtool.reports.gate.sarif import sarif
from gradtool.text.names import json_text

RENDERERS: Mapping[str, Callable[[GateRun], str]] = MappingProxyType(
    {
        "json": lambda gate: json_text({"schema_version": 1, **gate_json(gate)}) + "\n",
        "markdown": page,
        "github": github,
        "junit": junit,
        "sarif": lambda gate: json_text(sarif(gate)) + "\n",
    }
)

__all__ = ["RENDERERS", "GateRun"]
