"""The HTML report in a real browser: what it shows, and what it does when it is used."""

import json
from dataclasses import replace
from importlib import resources

import pytest
from browser import Browser, found
from pages import HOSTILE, chain_page, hostile_page, tiny_page, whole

from gradtool.planning.plan import Buffer
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.proof import Proof
from gradtool.reports.html import html_page
from gradtool.reports.memory import alive_at_peak
from gradtool.reports.trace import by_region
from gradtool.text.units import format_bytes, format_percent
from gradtool.workloads.planned import Arena, Planned

pytestmark = pytest.mark.skipif(found() is None, reason="no Chromium on this machine")

ROWS = "#tensors tbody tr"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def shown(browser, tmp_path):
    """Opens a page in the browser."""

    def show(page, **how):
        path = tmp_path / "report.html"
        path.write_text(html_page(page), encoding="utf-8")
        return browser.open(path, **how)

    return show


def regions(browser):
    """Region and size of each entry of the legend."""
    return dict(zip(browser.texts("#regions .region"), browser.texts("#regions .size"),
                    strict=True))  # fmt: skip


def at(plan, step):
    """What the legend says at a step of a plan."""
    sizes = {region: values[step] for region, values in by_region(plan).items()}
    sizes["free in the arena"] = plan.peak - sum(sizes.values())
    return {region: format_bytes(size) for region, size in sizes.items()}


def step_of(browser):
    return browser.value("Number(document.querySelector('#chart').ariaValueNow)")


def test_the_page_opens_at_the_peak_of_keeping_everything(shown):
    page = tiny_page()
    plan = page.rows[0].plan
    browser = shown(page)

    assert browser.complaints() == []
    assert step_of(browser) == plan.peak_step + 1
    assert regions(browser) == at(plan, plan.peak_step)
    names = [row[0] for row in alive_at_peak(plan, None).rows]
    assert sorted(browser.texts(f"{ROWS} th")) == sorted(names)


def test_the_page_asks_for_nothing_but_itself(shown):
    browser = shown(tiny_page())

    assert [url.partition(":")[0] for url in browser.requests()] == ["file"]


def test_choosing_a_plan_shows_its_course_and_its_peak(shown):
    page = tiny_page()
    browser = shown(page)
    peaks = [browser.texts(f"#plans tbody tr:nth-child({n}) td")[0] for n in (1, 2, 3)]

    browser.click("#plans tbody tr:nth-child(3) label")

    chosen = page.rows[2].plan
    assert peaks == [format_bytes(row.plan.peak) for row in page.rows]
    assert step_of(browser) == chosen.peak_step + 1
    assert regions(browser) == at(chosen, chosen.peak_step)


def test_keys_move_the_step_and_stop_at_both_ends(shown):
    plan = tiny_page().rows[0].plan
    last = len(plan.program.steps)
    browser = shown(tiny_page())
    browser.value("document.querySelector('#chart').focus()")
    steps = []

    for key in ("Home", "ArrowLeft", "ArrowRight", "ArrowRight", "End", "ArrowRight", "ArrowLeft"):
        browser.press(key)
        steps.append(step_of(browser))

    assert steps == [1, 1, 2, 3, last, last, last - 1]
    assert regions(browser) == at(plan, last - 2)
    assert f"step {last - 1} of {last}" in browser.text("#where")


def test_the_table_lists_what_is_alive_at_each_step_the_largest_first(shown):
    plan = tiny_page().rows[2].plan
    browser = shown(tiny_page())
    browser.click("#plans tbody tr:nth-child(3) label")
    browser.value("document.querySelector('#chart').focus()")
    browser.press("Home")

    for step in range(len(plan.program.steps)):
        alive = {buffer.name: buffer.bytes for buffer in plan.live(step)}
        names = browser.texts(f"{ROWS} th")

        assert sorted(names) == sorted(alive)
        assert [alive[name] for name in names] == sorted(alive.values(), reverse=True)
        browser.press("ArrowRight")


def test_hovering_looks_and_leaving_comes_back(shown):
    plan = tiny_page().rows[0].plan
    browser = shown(tiny_page())

    browser.move("#chart", 0.001)
    hovered, legend = step_of(browser), regions(browser)
    browser.move("h1")

    assert hovered == 1
    assert legend == at(plan, 0)
    assert step_of(browser) == plan.peak_step + 1 != 1


def test_clicking_stays_at_a_step(shown):
    browser = shown(tiny_page())

    browser.click("#chart", 0.001)
    browser.move("h1")
    stayed = step_of(browser)
    browser.click("#peak")

    assert stayed == 1
    assert step_of(browser) == tiny_page().rows[0].plan.peak_step + 1 != 1


def test_searching_finds_tensors_of_the_whole_step(shown):
    plan = tiny_page().rows[0].plan
    browser = shown(tiny_page())

    browser.click("#all")
    everything = browser.texts(f"{ROWS} th")
    browser.click("#search")
    browser.type("PARAM")

    assert sorted(everything) == sorted(buffer.name for buffer in plan.buffers)
    assert sorted(browser.texts(f"{ROWS} th")) == ["b", "w"]
    assert browser.text("#count").startswith("2 tensors in the whole step")


def test_columns_sort_the_table(shown):
    browser = shown(tiny_page())

    browser.click("[data-sort=name]")

    names = browser.texts(f"{ROWS} th")
    assert names == sorted(names)
    assert browser.value("document.querySelector('[data-sort=name]').parentNode.ariaSort") == (
        "ascending"
    )


def test_a_chosen_tensor_is_marked_over_the_steps_it_is_held(shown):
    browser = shown(tiny_page())

    browser.click(f"{ROWS} button")

    assert browser.value("document.querySelector('.span').width.baseVal.value") > 0
    assert browser.value("document.querySelector('tbody [aria-pressed=true]') !== null")


def test_hostile_names_are_shown_and_do_nothing(shown):
    browser = shown(hostile_page())
    browser.click("#all")

    texts = " ".join(browser.texts(f"{ROWS} th"))

    assert browser.complaints() == []
    assert f"{HOSTILE[0]}_output_0" in texts
    assert HOSTILE[3] in texts
    assert r"\x1b[31mred\x1b[0m" in texts
    assert "😀😀中/b_output_0" in texts
    assert "\u202e" not in browser.text("body")
    assert browser.value("document.images.length + document.scripts.length") == 2
    assert browser.text("h1") == HOSTILE[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_does_not_scroll_sideways(shown, scheme):
    browser = shown(hostile_page(), width=400, scheme=scheme)

    assert browser.value("document.documentElement.scrollWidth") <= 400


def test_dark_is_dark_and_print_is_light(shown, browser):
    shown(tiny_page(), scheme="dark")
    dark = browser.value("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", media="print")
    paper = browser.value("getComputedStyle(document.body).backgroundColor")

    assert dark == "rgb(22, 24, 27)"
    assert paper == "rgb(255, 255, 255)"


@pytest.mark.exhaustive
def test_many_steps_are_drawn_in_as_many_columns_as_fit(shown):
    page = chain_page(20_000)
    browser = shown(page)
    browser.value("document.querySelector('#chart').focus()")
    corners = browser.value("document.querySelector('.area').getAttribute('d').split('L').length")

    browser.press("Home")
    browser.press("ArrowRight")

    assert corners < 4 * 1280
    assert step_of(browser) == 2
    assert regions(browser) == at(page.rows[0].plan, 1)
    assert browser.complaints() == []


def test_a_program_without_steps_is_an_empty_page(shown):
    browser = shown(chain_page(0))

    browser.click("#all")
    browser.click("#on")

    assert browser.complaints() == []
    assert browser.text("#count").startswith("1 tensor ")


def test_the_frontier_has_a_row_and_a_dot_a_budget(shown):
    proof = Proof(1 << 20, 0, 10, 5, 40, "cut", "<b>mirror</b>")
    plan = tiny_page().rows[0].plan
    found = [
        Planned("keep", Arena.of(plan), Schedule.of(()), proof=replace(proof, budget=n << 20))
        for n in (1, 2)
    ]
    browser = shown(replace(tiny_page(), frontier=found))

    rows = browser.texts("#points tbody tr")

    assert rows[0].split("\t") == [
        "1.00 MiB", format_bytes(plan.peak), "+25.000 %", "+12.500 %", "<b>mirror</b>",
    ]  # fmt: skip
    assert len(rows) == browser.value("document.querySelectorAll('#curve circle').length") == 2
    assert browser.complaints() == []


def test_a_column_shows_the_largest_of_its_steps(shown):
    page, step = chain_page(20_000), 10_007
    plan = page.rows[0].plan
    spike = Buffer("spike", "workspace", 1 << 20, 0, step, step)
    plan = replace(plan, buffers=(*plan.buffers, spike), peak=2 << 20)
    browser = shown(replace(page, rows=[replace(page.rows[0], planned=whole(plan))]))

    left, right, width = 64, 12, browser.box("#chart")[2]
    columns = int(width - left - right)
    middle = step * columns // 20_000 + 0.5
    browser.move("#chart", (left + middle * (width - left - right) / columns) / width)

    assert step_of(browser) == step + 1
    assert regions(browser)["workspace"] == "1.00 MiB"


def test_numbers_are_written_as_gradtool_writes_them(browser):
    sizes = [1024**power * k // 1000 for power in range(6) for k in range(1000, 1_024_000, 7919)]
    sizes += [0, 1, 1023, 1024, 1152, 1279, 10_291, 1_043_333, 1_048_063, 1_048_064]
    shares = [k / 4096 for k in range(4097)]
    source = (resources.files("gradtool.reports") / "assets" / "format.js").read_text()
    asked = f"[{json.dumps(sizes)}.map(bytesText), {json.dumps(shares)}.map((x) => percentText(x))]"

    written, percents = browser.value(f"(() => {{ {source}\nreturn {asked}; }})()")

    assert written == [format_bytes(size) for size in sizes]
    assert percents == [format_percent(share) for share in shares]
