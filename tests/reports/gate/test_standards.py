"""SARIF and JUnit as their schemas demand them, for every verdict and every name."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

import pytest
from gates import CONFIG, HOSTILE, case, failing, gate, metrics, passing, write
from standards import junit_mistakes, sarif_mistakes

from gradtool.check import Judged
from gradtool.check.verdicts import FAILED, Verdict
from gradtool.reports.gate import RENDERERS

MISTAKES = {"sarif": sarif_mistakes, "junit": junit_mistakes}
forms = pytest.mark.parametrize("form", MISTAKES)


def mistakes(form, *judged, **more):
    return MISTAKES[form](RENDERERS[form](gate(*judged, **more)))


def told(verdict: Verdict) -> Judged:
    """A verdict as bare as it can be: of some there are metrics, of none changes."""
    known = None if verdict == "error" else metrics(peak=64)
    return Judged(case(verdict), verdict, known, exit_code=int(verdict in FAILED))


@forms
def test_nothing_at_all_is_a_document(form):
    assert mistakes(form) == []


@forms
@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_every_verdict_is_within_the_standard(form, verdict):
    assert mistakes(form, told(verdict)) == []
    assert mistakes(form, *map(told, get_args(Verdict)), base="HEAD~1") == []


@forms
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_every_name_is_within_the_standard(form, name):
    judged = (failing(name, name, name), failing(f"e{name}", error=name), passing(name))
    run = replace(gate(*judged, base=name), config=f"{name}/gradtool.toml")

    assert MISTAKES[form](RENDERERS[form](run)) == []


@forms
def test_what_the_command_writes_is_within_the_standard(run, tmp_path, form):
    (tmp_path / "gradtool.toml").write_text(CONFIG + '[[case]]\nmodel = "none.onnx"\n')
    write(tmp_path / "net.onnx")
    found = [
        run("check", "-j", "1", "--output", form, *flags).out
        for flags in ((), ("--allow-new",), ("net", "--update"), ("net",))
    ]
    write(tmp_path / "net.onnx", width=64)
    found.append(run("check", "-j", "1", "--output", form).out)

    assert [MISTAKES[form](text) for text in found] == [[]] * 5
    assert len(set(found)) >= 4


def test_the_schemas_refuse_what_departs_from_them():
    log = json.loads(RENDERERS["sarif"](gate(failing())))
    log["runs"][0]["results"][0]["level"] = "fatal"
    suites = RENDERERS["junit"](gate(failing()))

    assert sarif_mistakes(json.dumps(log)) == [
        "$.runs[0].results[0].level: 'fatal' is not one of ['none', 'note', 'warning', 'error']"
    ]
    (mistake,) = junit_mistakes(
        suites.replace('<testcase classname="gradtool check" name="net">', "<testcase>")
    )
    assert "The attribute 'name' is required but missing." in mistake
