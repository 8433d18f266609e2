"""The verdicts as SARIF 2.1.0, for code scanning: a result for each failure.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0, §3.13 to §3.30.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import quote

from gradtool.check.sentences import GateRun, culprits, explanation
from gradtool.check.verdicts import FAILED, Judged
from gradtool.text.names import escape
from gradtool.text.version import VERSION

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    "grew": "A training step takes more than its baseline allows.",
    "over limit": "A training step takes more than its limit.",
    "new": "There is no baseline of a case.",
    "stale": "The baseline of a case is not of today.",
    "error": "A case cannot be planned.",
}


def sarif(gate: GateRun) -> dict[str, Any]:
    """The log of one run."""
    rules = [
        {"id": _rule(verdict), "shortDescription": {"text": RULES[verdict]}} for verdict in FAILED
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "gradtool", "version": VERSION, "rules": rules}},
                "results": [_result(gate, judged) for judged in gate.failed],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def _result(gate: GateRun, judged: Judged) -> dict[str, Any]:
    lines = [*explanation(judged), culprits(judged)]
    said = "; ".join(escape(line) for line in lines if line)
    message = f"{escape(judged.case.name)}: {said or judged.verdict}"
    place = {
        "artifactLocation": {"uri": quote(gate.config.replace("\\", "/"), errors="replace")},
        "region": {"startLine": judged.case.line},
    }
    name = hashlib.sha256(judged.case.name.encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "ruleId": _rule(judged.verdict),
        "ruleIndex": FAILED.index(judged.verdict),
        "level": "error",
        "message": {"text": message},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"case/v1": name},
    }


def _rule(verdict: str) -> str:
    return f"memory/{verdict.replace(' ', '-')}"
