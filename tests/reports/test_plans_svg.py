"""The plans of a model as one picture."""

import re
from xml.dom import minidom

import pytest
from pages import chain_page, hostile_page, tiny_page

from gradtool.reports.plans_svg import CHART, MOST, WIDTH, plans_svg
from gradtool.text.units import format_bytes

NARROW = 420 - 32  # pixels that a telephone has for a picture in a page of text
LEAST = 11  # pixels of a letter there
PAGES = {
    "tiny": tiny_page, "hostile": hostile_page, "none": lambda: chain_page(0),
    "many": lambda: chain_page(20_000),
}  # fmt: skip


def texts(picture):
    """What is written in a picture."""
    root = minidom.parseString(picture)  # noqa: S318 - we have just written it
    return ["".join(n.data for n in e.childNodes) for e in root.getElementsByTagName("text")]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PAGES)
def test_a_picture_is_well_formed_and_the_same_each_time(name):
    picture = plans_svg(PAGES[name]())

    assert picture == plans_svg(PAGES[name]())
    assert texts(picture)
    assert "<script" not in picture
    elements = minidom.parseString(picture).getElementsByTagName("*")  # noqa: S318 - ours
    assert not [e for e in elements if {"href", "xlink:href", "src"} & set(e.attributes.keys())]
    assert not set(re.findall(r"[\x00-\x08\x0e-\x1f\x7f\u202a-\u202e]", picture))


def test_letters_can_be_read_on_a_telephone():
    sizes = [int(n) for n in re.findall(r"(?:font|font-size): (\d+)px", plans_svg(tiny_page()))]

    assert sizes
    assert min(sizes) * NARROW / WIDTH >= LEAST


def test_it_says_what_the_table_says_and_draws_each_peak_where_it_is():
    page = tiny_page()
    picture = plans_svg(page)
    written, ceiling = texts(picture), max(row.peak for row in page.rows)
    drawn = re.findall(r'<polyline class="(\w+)" points="([^"]*)"', picture)

    assert [kind for kind, _ in drawn] == ["area", "run0", "run1"]
    for row, (_, points) in zip(page.rows, drawn, strict=True):
        highest = min(float(point.split(",")[1]) for point in points.split())
        assert row.title in written
        assert format_bytes(row.peak) in written
        most = max(
            sum(b.bytes for b in row.plan.live(s)) for s in range(len(row.plan.program.steps))
        )
        assert highest == pytest.approx(CHART * (1 - most / ceiling), abs=0.06)


@pytest.mark.exhaustive
def test_of_many_steps_the_largest_of_their_shares_are_drawn():
    page = chain_page(20_000)
    drawn = re.findall(r'<polyline class="run0" points="([^"]*)"', plans_svg(page))[0]

    assert len(drawn.split()) == 2 * MOST


def test_the_command_writes_it_beside_the_others(run, tiny_model, tmp_path):
    done = run("report", tiny_model, "--batch", "4", "--svg", "a.svg", "--html", "a.html")
    again = run("report", tiny_model, "--batch", "4", "--svg", "a.svg")

    assert done.code == 0, done.err
    assert "keep everything" in texts((tmp_path / "a.svg").read_text())
    assert (tmp_path / "a.html").is_file()
    assert again.code == 2
    assert "--svg" in again.err or "a.svg" in again.err


def test_it_is_of_one_model(run, tiny_model):
    two = run("report", tiny_model, tiny_model, "--svg", "a.svg")
    ranks = run("report", tiny_model, "--ranks", "2", "--svg", "a.svg")

    assert (two.code, ranks.code) == (2, 2)
    assert "--svg" in two.err
    assert "--svg" in ranks.err
