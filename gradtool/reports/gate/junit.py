"""The verdicts as JUnit XML: a test case each, and its metrics as the test's output.

There is no time in it: the same verdicts are the same bytes.

Source: junit-10.xsd of Jenkins, where only a whole suite may have properties.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from gradtool.check.sentences import GateRun, culprits, explanation
from gradtool.check.verdicts import Judged
from gradtool.text.names import escape

SUITE = "gradtool check"


def junit(gate: GateRun) -> str:
    """The document; errors are cases that could not be planned."""
    errors = sum(judged.verdict == "error" for judged in gate.judged)
    counts = {
        "tests": str(len(gate.judged)),
        "failures": str(len(gate.failed) - errors),
        "errors": str(errors),
    }
    top = ET.Element("testsuites", {"name": SUITE, **counts})
    suite = ET.SubElement(top, "testsuite", {"name": SUITE, **counts, "skipped": "0"})
    for judged in gate.judged:
        _case(suite, judged)
    ET.indent(top)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(top, encoding="unicode")}\n'


def _case(suite: ET.Element, judged: Judged) -> None:
    name = escape(judged.case.name)
    found = ET.SubElement(suite, "testcase", {"classname": SUITE, "name": name})
    if judged.failed:
        lines = [escape(line) for line in (*explanation(judged), culprits(judged)) if line]
        what = "error" if judged.verdict == "error" else "failure"
        first = lines[0] if lines else judged.verdict
        failure = ET.SubElement(found, what, {"message": first, "type": judged.verdict})
        failure.text = "\n".join(lines)
    if judged.metrics is not None:
        printed = ET.SubElement(found, "system-out")
        printed.text = "\n".join(f"{name} {n}" for name, n in judged.metrics.values.items())
