"""What kernels took, by operator, under the roofs of the machine."""

import re
from dataclasses import replace
from pathlib import Path
from xml.dom import minidom

import pytest

import gradtool as gt
from gradtool.program.roofline import Reach
from gradtool.reports.roofline import by_operator, roofline_table
from gradtool.reports.roofline_page import roofline_page

REACH = Reach(1e11, 1e10)
SAMPLE = Path(__file__).parents[2] / "samples" / "cnn.onnx"


@pytest.fixture(scope="module")
def steps():
    return gt.plan(gt.grad(gt.load(SAMPLE, batch=2))).program.steps


def test_rows_add_up_to_the_step_and_the_longest_comes_first(steps):
    seconds = [1e-5 * (n % 7 + 1) for n in range(len(steps))]
    found = by_operator(steps, seconds, REACH)

    assert sum(kernel.runs for kernel in found) == len(steps)
    assert sum(kernel.seconds for kernel in found) == pytest.approx(sum(seconds))
    assert sum(kernel.flops for kernel in found) == sum(step.flops or 0 for step in steps)
    taken = [kernel.seconds for kernel in found]
    assert taken == sorted(taken, reverse=True)


def test_a_step_as_fast_as_its_roof_is_at_one(steps):
    at_roof = [
        max((step.flops or 0) / REACH.flops, step.moved / REACH.bytes) or 1e-9 for step in steps
    ]
    for factor in (1, 4):
        for kernel in by_operator(steps, [factor * each for each in at_roof], REACH):
            if kernel.flops + kernel.moved:
                assert kernel.roof == pytest.approx(1 / factor, rel=1e-3)


def test_others_are_put_together_and_no_machine_means_no_roof(steps):
    kernels = by_operator(steps, [1e-3] * len(steps), None)
    table = roofline_table(kernels, None, most=3)

    assert len(table.rows) == 3
    assert f"and {len(kernels) - 3} more" in table.footer
    assert {row[-1] for row in table.rows} == {"-"}
    assert "this machine" not in table.footer


@pytest.mark.parametrize("reach", [REACH, None])
@pytest.mark.parametrize("seconds", [0.0, 1e-4])
def test_the_page_is_well_formed_and_has_no_script(steps, reach, seconds):
    named = [replace(step, name="</title><script>alert(1)</script>") for step in steps]
    page = roofline_page("a<b", "told", named, [seconds] * len(named), reach)

    for picture in re.findall(r'<div class="picture.*?</div>', page, re.DOTALL):
        minidom.parseString(picture)  # noqa: S318 - we have just written it
    assert "<script" not in page
    assert "a&lt;b" in page
    assert ("Roofline" in page) is (reach is not None)
    assert page == roofline_page("a<b", "told", named, [seconds] * len(named), reach)


@pytest.mark.exhaustive
def test_the_command_writes_the_page_and_shows_the_profile(run, tmp_path):
    page, profile = tmp_path / "k.html", tmp_path / "p.json"
    done = run("run", SAMPLE, "--batch", "2", "--html", page, "--profile", profile)

    assert done.code == 0, done.err
    assert "of roof" in done.out
    assert "this machine reaches" in done.out
    assert "Time by operator" in page.read_text()
    again = run("run", SAMPLE, "--batch", "2", "--html", page)
    assert again.code == 2
    assert "k.html" in again.err
