"""All pages have letters that can be read, at any width, and keys reach what a pointer does."""

import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from browser import Browser, found
from pages import PAGES

LEAST = 11  # pixels
SIZES = """[...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())).map((e) =>
    parseFloat(getComputedStyle(e).fontSize) * (e.getScreenCTM ? e.getScreenCTM().a : 1))"""
CROWDED = """[...document.querySelectorAll('svg')].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll('text.step')].map((e) => e.getBoundingClientRect());
    return boxes.filter((a, n) => a.width && boxes.some((b, m) => m > n && b.width
        && a.top === b.top && a.left < b.right && b.left < a.right));
}).length"""


class Elements(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.all = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))


def test_no_style_sheet_has_smaller_letters():
    for sheet in ("report.css", "pictures.css"):
        text = (resources.files("gradtool.reports") / "assets" / sheet).read_text()
        sizes = [float(n) for n in re.findall(r"font(?:-size)?: (?:[^;]* )?([0-9.]+)px", text)]

        assert sizes
        assert min(sizes) >= LEAST


@pytest.mark.parametrize("name", PAGES)
def test_what_scrolls_takes_the_focus_and_what_is_drawn_has_a_name(name):
    elements = Elements(PAGES[name]()).all
    scrolled = [a for _, a in elements if a.get("class") == "scroll" and "role" in a]
    drawn = [a for tag, a in elements if tag == "svg" and a.get("role") == "img"]
    named = [a["id"] for _, a in elements if "id" in a]

    assert scrolled
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolled)
    assert len({a["aria-label"] for a in scrolled}) == len(scrolled)
    assert all(a["aria-label"] for a in drawn)
    assert len(set(named)) == len(named)
    assert ("html", {"lang": "en"}) in elements


@pytest.mark.parametrize("name", [name for name in PAGES if name != "report"])
def test_pictures_have_their_numbers_below_them(name):
    text = PAGES[name]()

    assert text.count("<details>") == text.count("<summary>in numbers</summary>") > 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.mark.sample(9)
@pytest.mark.skipif(found() is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(420, "light"), (800, "dark"), (1280, "light")])
def test_letters_have_their_size_and_stand_apart_at_any_width(
    browser, tmp_path, name, width, scheme
):
    path = tmp_path / "page.html"
    path.write_text(PAGES[name](), encoding="utf-8")
    page = browser.open(path, width=width, scheme=scheme)

    assert page.complaints() == []
    assert min(page.value(SIZES)) >= LEAST
    assert page.value(CROWDED) == 0
    assert page.value("document.documentElement.scrollWidth") <= width


@pytest.mark.skipif(found() is None, reason="no Chromium on this machine")
def test_a_curve_is_drawn_again_where_the_page_becomes_narrow(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(PAGES["report"](), encoding="utf-8")
    browser.open(path, width=1280)
    browser.call("Emulation.setDeviceMetricsOverride", width=420, height=900,
                 deviceScaleFactor=1, mobile=False)  # fmt: skip
    browser.settle()
    browser.settle()

    assert min(browser.value(SIZES)) >= LEAST
