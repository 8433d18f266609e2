"""Verdicts in every medium: what each says, and that names are inert in it."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from gates import HOSTILE, failing, gate, passing
from rich.console import Console

from gradtool.check.sentences import change, culprits, explanation, headline
from gradtool.check.verdicts import FAILED
from gradtool.reports.gate import RENDERERS
from gradtool.reports.gate.tables import grown_table, verdict_table
from gradtool.text.table import render

BIDI = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
names = pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))


def rendered(form, *judged):
    return RENDERERS[form](gate(*judged))


def everywhere(name):
    """A failure in which case, tensor and reason have a name, and an error with it."""
    return failing(name, name, name), failing(f"e{name}", error=name)


@names
@pytest.mark.parametrize("form", RENDERERS)
def test_no_name_commands_a_terminal_or_turns_the_text_around(form, name):
    text = rendered(form, *everywhere(name), passing(name))

    assert all(char.isprintable() or char == "\n" for char in text)
    assert not BIDI.search(text)
    assert text == rendered(form, *everywhere(name), passing(name))


@names
@pytest.mark.parametrize("form", ["json", "markdown", "junit", "sarif"])
def test_a_runner_finds_no_command_in_what_is_no_annotation(form, name):
    text = rendered(form, *everywhere(name))

    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert not re.search(r"##\[", text)


@names
def test_an_annotation_is_a_line_for_each_failure(name):
    lines = rendered("github", *everywhere(name), passing(name)).splitlines()

    assert len(lines) == 2
    for line in lines:
        head, _, message = line.removeprefix("::error ").partition("::")
        properties = dict(part.split("=", 1) for part in head.split(","))
        assert list(properties) == ["file", "line", "title"]
        assert len(message) < 5000
        assert "\r" not in message


def test_an_annotation_says_what_grew():
    (line,) = rendered("github", failing()).splitlines()

    assert line == (
        "::error file=gradtool.toml,line=1,title=gradtool check%3A net%3A grew::"
        "peak 1.00 MiB → 2.00 MiB (+100.0 %25): fail-on peak:1%25; grew: h +1.00 MiB (32 → 64)"
    )


@names
def test_markdown_keeps_its_tables_and_has_no_markup_of_others(name):
    text = rendered("markdown", *everywhere(name), passing(name))

    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {7, 5}
    assert "<script" not in text
    assert not re.search(r"(?<!&#91;)\]\(", text)


@pytest.mark.exhaustive
def test_a_summary_is_no_longer_than_a_job_may_have():
    judged = [failing(f"case{n}", "h" * 10_000, "y" * 10_000) for n in range(3000)]

    text = rendered("markdown", *judged)

    assert len(text.encode()) < 1 << 20
    assert "more failed; the JSON output has all of them." in text


@names
def test_junit_is_what_its_readers_expect(name):
    text = rendered("junit", *everywhere(name), passing(name))
    top = ET.fromstring(text)  # noqa: S314 - written above

    (suite,) = top
    cases = suite.findall("testcase")
    assert (top.tag, suite.tag) == ("testsuites", "testsuite")
    for counted in (top, suite):
        assert {counted.get(key) for key in ("tests",)} == {str(len(cases))}
        assert (counted.get("failures"), counted.get("errors")) == ("1", "1")
    assert [[child.tag for child in found] for found in cases] == [
        ["failure", "system-out"], ["error"], ["system-out"],
    ]  # fmt: skip
    for found in cases:
        assert set(found.attrib) == {"name", "classname"}
        for child in found:
            wanted = set() if child.tag == "system-out" else {"message", "type"}
            assert set(child.attrib) == wanted
    assert cases[0].findtext("system-out") == f"peak {1 << 21}"


@names
def test_sarif_is_what_its_standard_demands(name):
    log = json.loads(rendered("sarif", *everywhere(name), passing(name)))

    assert (log["version"], set(log)) == ("2.1.0", {"$schema", "version", "runs"})
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert isinstance(driver["name"], str)
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(set(rules)) == len(rules) == len(FAILED)
    assert all(isinstance(rule["shortDescription"]["text"], str) for rule in driver["rules"])
    assert [result["ruleId"] for result in run["results"]] == ["memory/grew", "memory/error"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        (place,) = result["locations"]
        assert re.fullmatch(r"[\w./%-]+", place["physicalLocation"]["artifactLocation"]["uri"])
        assert place["physicalLocation"]["region"]["startLine"] >= 1
        assert all(isinstance(v, str) for v in result["partialFingerprints"].values())


@names
def test_json_has_names_exactly(name):
    document = json.loads(rendered("json", failing(name, name, name)))

    (found,) = document["cases"]
    assert (found["case"], found["grown"][0]["name"]) == (name, name)


def test_json_has_exact_numbers():
    (found,) = json.loads(rendered("json", failing()))["cases"]

    assert found["changes"] == [
        {"metric": "peak", "baseline": 1 << 20, "now": 1 << 21, "broken": ["fail-on peak:1%"]}
    ]
    assert found["metrics"] == {"peak": 1 << 21}


def test_the_table_says_grew_in_capitals_and_ok_in_small_letters():
    rows = verdict_table([failing(), passing(), failing(error="no such file")]).rows

    assert rows == (
        ("net", "keep", "1.00 MiB", "2.00 MiB", "+100.0 %", "GREW"),
        ("fine", "keep", "64 B", "64 B", "", "ok"),
        ("net", "keep", "", "", "", "ERROR"),
    )


def test_what_grew_is_named_below_with_reasons():
    table = grown_table(failing())

    assert table.rows == (
        ("h", "", "1.00 MiB", "32 → 64"),
        ("all Relu", "64 B", "1.00 MiB", "1 → 2 nodes"),
    )
    assert grown_table(passing()) is None


def test_on_a_narrow_terminal_a_reason_is_wrapped_and_whole():
    base = failing()
    why = "new operator LpNormalization: the policy runs this operator once"
    table = grown_table(replace(base, grown=(replace(base.grown[0], why=why),)))
    stream = io.StringIO()

    assert table is not None
    render(table, Console(file=stream, width=60, height=25, color_system=None))

    assert all(len(line) <= 60 for line in stream.getvalue().splitlines())
    assert " ".join(stream.getvalue().split()).endswith(why)


def test_of_many_the_largest_are_shown_and_the_rest_is_counted():
    base = failing()
    many = replace(base, grown=tuple(replace(base.grown[0], name=str(n)) for n in range(100)))

    table = grown_table(many)

    assert len(table.rows) == 12
    assert table.footer == "and 88 more (--output json has all)"
    assert culprits(many).endswith(" and 97 others")


def test_a_small_change_is_told_in_bytes():
    from gradtool.check.verdicts import Change

    assert change(Change("peak", 1 << 30, (1 << 30) + 64)) == "+64 B"
    assert change(Change("peak", 1 << 30, (1 << 30) - 64)) == "-64 B"
    assert change(Change("peak", 0, 64)) == "+64 B"
    assert change(Change("peak", 1000, 1031)) == "+3.1 %"
    assert change(Change("peak", 1000, 1000)) == change(Change("peak", None, 5)) == ""


def test_the_headline_counts():
    assert headline(gate(passing())) == "1 case checked, none failed"
    assert headline(gate(failing(), passing(), base="v1")) == (
        "2 cases checked against v1, 1 failed"
    )
    assert explanation(passing()) == []
