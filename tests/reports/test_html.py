import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib import resources
from itertools import accumulate

import pytest
from pages import HOSTILE, chain_page, hostile_page, tiny_page

from gradtool.reports.html import SCRIPT, embedded, html_page
from gradtool.reports.page_data import LONGEST, page_data


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text within each script and style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.raw, self._open = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, attrs))
        self._open = tag if tag in ("script", "style") else None
        if self._open:
            self.raw.append((tag, dict(attrs), ""))

    def handle_data(self, data):
        if self._open:
            tag, attrs, text = self.raw[-1]
            self.raw[-1] = (tag, attrs, text + data)

    def handle_endtag(self, _tag):
        self._open = None


def read_back(text):
    (found,) = [t for _, attrs, t in Tags(text).raw if attrs.get("type") == "application/json"]
    data, before, strings = json.loads(found), "", []
    for shared, rest in zip(data["strings"]["shared"], data["strings"]["rest"], strict=True):
        before = before.encode("utf-16-le")[: 2 * shared].decode("utf-16-le") + rest
        strings.append(before)
    return data | {"strings": strings}


def tensors_of(data, plan):
    """Name, others in its place, bytes, and the spans of regions, as the script decodes them."""
    table, strings = data["tensors"], data["strings"]
    rows = zip(accumulate(plan["tensors"]), accumulate(plan["first"]), plan["held"], plan["turn"],
               strict=True)  # fmt: skip
    found = []
    for t, first, held, turn in rows:
        text = {key: strings[table[key][t]] for key in ("name", "also", "region", "later")}
        spans = [(text["region"], first, first + held)]
        if text["later"]:
            last = first + held
            spans = [(text["region"], first, first + turn - 1), (text["later"], first + turn, last)]
        found.append((text["name"], text["also"], table["bytes"][t], spans))
    return found


def test_the_page_holds_every_buffer_of_every_plan():
    page = tiny_page()
    data = read_back(html_page(page))

    for row, plan in zip(page.rows, data["plans"], strict=True):
        values = row.plan.program.values
        held = [
            (b.name, ", ".join(values[v].name for v in row.plan.also(b)), b.bytes,
             [(span.region, span.first, span.last) for span in b.spans])
            for b in row.plan.buffers
        ]  # fmt: skip

        assert tensors_of(data, plan) == held
        assert plan["peak"] == row.plan.peak
        assert plan["peak_step"] == row.plan.peak_step


def test_the_page_holds_every_step_of_every_plan():
    page = tiny_page()
    data = read_back(html_page(page))
    columns = [data["nodes"][column] for column in ("name", "op", "stage", "source")]

    for row, plan in zip(page.rows, data["plans"], strict=True):
        steps = [(s.name, s.op, s.stage, s.source) for s in row.plan.program.steps]
        texts = [
            tuple(data["strings"][column[node]] for column in columns)
            for node in accumulate(plan["nodes"])
        ]

        assert texts == steps


def test_assumed_sizes_are_marked():
    data = page_data(hostile_page())

    assert data["sizes"].count("(assumed)") == 1
    assert "=4," in data["sizes"]


@pytest.mark.exhaustive
def test_the_same_plans_give_the_same_bytes(shell, tiny_model):
    for seed in ("1", "2"):
        outcome = shell("report", tiny_model, "--batch", "4", "--html", f"{seed}.html",
                        "--trace", f"{seed}.json", PYTHONHASHSEED=seed)  # fmt: skip

        assert outcome.returncode == 0, outcome.stderr

    folder = tiny_model.parent
    assert (folder / "1.html").read_bytes() == (folder / "2.html").read_bytes()
    assert (folder / "1.json").read_bytes() == (folder / "2.json").read_bytes()


def test_hostile_names_add_no_tag_and_no_attribute():
    plain, hostile = Tags(html_page(tiny_page())), Tags(html_page(hostile_page()))

    assert hostile.tags == plain.tags


def test_hostile_names_are_data_without_control_or_bidirectional_characters():
    text = html_page(hostile_page())
    body = text.partition('id="data">')[2].partition("</script>")[0]

    assert not set("<>&\n\x1b") & set(body)
    assert body.isascii()
    strings = read_back(text)["strings"]
    assert HOSTILE[0] in strings
    assert r"\x1b[31mred\x1b[0m" in strings
    assert r"a\u202eb\u2066c\u200fd" in strings
    assert HOSTILE[5] in strings
    assert max(map(len, strings)) <= LONGEST + len(" (workspace)")


def test_only_the_page_s_own_script_and_style_may_run():
    parsed = Tags(html_page(hostile_page()))
    (policy,) = [dict(a)["content"] for t, a in parsed.tags if t == "meta" and len(a) == 2
                 and dict(a).get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))

    assert allowed["default-src"] == "'none'"
    for tag, attrs, text in parsed.raw:
        if "type" not in attrs:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert allowed[f"{tag}-src"] == f"'sha256-{digest}'"


def test_nothing_is_fetched_and_no_handler_stands_in_the_markup():
    text = html_page(tiny_page())

    for _, attrs in Tags(text).tags:
        for name, _ in attrs:
            assert not name.startswith("on")
            assert name not in ("src", "href", "style")
    addresses = re.findall(r"https?://[^\"'\s]+", text)
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", text)


@pytest.mark.parametrize("name", SCRIPT)
def test_scripts_set_text_and_never_markup(name):
    text = (resources.files("gradtool.reports") / "assets" / name).read_text()

    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(",
                         text)  # fmt: skip


def test_embedded_json_reads_back_and_cannot_end_its_element():
    document = ["</script>", "<!--", "]]>", "&lt;", "\u2028", "\x00", "ü"]

    text = embedded(document)

    assert json.loads(text) == document
    assert not set("<>&\u2028") & set(text)


@pytest.mark.exhaustive
def test_a_page_of_twenty_thousand_steps_and_three_plans_is_small():
    # 40 000 names, each of which begins like the one before, take some 20 bytes; so do the numbers
    # of a node and a tensor; a plan adds 4 small numbers a step.
    assert len(html_page(chain_page(20_000))) < 3_000_000
