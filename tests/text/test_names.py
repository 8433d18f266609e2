import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.text.names import escape, fit, json_text, shorten, wrapped

HOSTILE = {
    "an escape sequence": "\x1b[31mred\x1b[0m",
    "a window title": "\x1b]0;owned\x07",
    "a C1 control": "\x9b31m",
    "delete": "a\x7fb",
    "new lines": "one\r\ntwo\u2028three\x85four",
    "right to left": "safe\u202egnp.exe\u202c\u2066\u2069\u200f",
    "a zero width space": "a\u200bb",
    "a lone surrogate": "a\udc80b",
    "a runner command": "::error file=x::owned",
    "a runner command after a space": "a \t::set-output name=x::y",
    "an old runner command": "a ##[error]owned ##vso[task.setvariable]",
    "rich markup": "[bold red]x[/] [link=http://example.com]y[/link]",
    "Markdown": "a|b `c` <script>alert(1)</script> ![x](http://example.com) **d** \\",
    "a formula": '=HYPERLINK("http://example.com")',
    "ten thousand characters": "layer/" * 1667,
}

names = pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())


@names
@pytest.mark.parametrize("medium", ["terminal", "markdown", "csv", "json", "html"])
def test_a_hostile_name_is_inert(name, medium):
    text = escape(name, medium)

    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in text)
    assert "##[" not in text
    assert "##vso[" not in text
    if medium != "json":
        assert not any(word.startswith("::") for word in text.split())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("\x1b[0m", r"\x1b[0m"),
        ("a\nb", r"a\x0ab"),
        ("\u202e", r"\u202e"),
        ("\U000e0041", r"\U000e0041"),
        ("::error::x", r"\x3a:error::x"),
        ("##[error]x", r"#\x23[error]x"),
    ],
)
def test_what_is_escaped_is_visible(name, text):
    assert escape(name) == text


@pytest.mark.parametrize(
    "name", ["com.acme::Gate", "/layer1/Conv_output_0", "重み", "résumé", "a##b", "x[0]", "C:\\x"]
)
def test_an_ordinary_name_stays_as_it_is(name):
    assert escape(name) == name


@given(st.text())
def test_escaping_twice_is_escaping_once(name):
    assert escape(escape(name)) == escape(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("onnx::Conv_123", "onnx::Conv_123"),
        ("a|b", "a&#124;b"),
        ("`a`", "&#96;a&#96;"),
        ("<b>", "&#60;b&#62;"),
        ("[x](http://y)", "&#91;x&#93;(http&#58;//y)"),
        ("__init__", "&#95;&#95;init&#95;&#95;"),
        ("&lt;", "&#38;lt;"),
        ("a\\|", "a&#92;&#124;"),
        ("\x1b", r"\x1b"),
    ],
)
def test_markdown_punctuation_becomes_entities(name, text):
    assert escape(name, "markdown") == text


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "＝1"])
def test_a_spreadsheet_finds_no_formula(name):
    assert escape(name, "csv") == f"'{name}"


def test_html_has_no_tag_and_leaves_no_attribute():
    assert escape("\"'<a>&", "html") == "&quot;&#x27;&lt;a&gt;&amp;"


@names
def test_json_is_ascii_and_exact(name):
    assert json_text({name: name}).isascii()
    assert json.loads(json_text({name: [name]})) == {name: [name]}
    assert json.loads(f'"{escape(name, "json")}"') == name


@given(st.text())
def test_any_name_survives_json(name):
    assert json.loads(json_text(name)) == name


@pytest.mark.parametrize(
    ("name", "width", "text"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 7, "abc…hij"),
        ("abcdefghij", 6, "abc…ij"),
        ("abcdefghij", 1, "…"),
        ("abcdefghij", 0, ""),
        ("重重重重重", 7, "重重…重"),
        ("重重重重重", 6, "重…重"),
    ],
)
def test_the_middle_is_left_out(name, width, text):
    assert shorten(name, width) == text


def test_dots_stand_in_for_the_ellipsis():
    assert shorten("abcdefghij", 7, ellipsis="...") == "ab...ij"


@given(st.text(max_size=60), st.integers(0, 40))
def test_a_shortened_name_fits(name, width):
    from rich.cells import cell_len

    assert cell_len(shorten(escape(name), width)) <= width


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("12…34 µs 重", "utf-8", "12…34 µs 重"),
        ("12…34 µs 重", "ascii", r"12...34 us \u91cd"),
        ("é…", "latin-1", "é..."),
        ("é", "no such encoding", r"\xe9"),
    ],
)
def test_text_fits_the_encoding(text, encoding, shown):
    assert fit(text, encoding) == shown


@given(st.text("ab 9KiB,.", max_size=200), st.integers(1, 90))
def test_wrapping_loses_nothing_and_fits_where_words_do(line, width):
    parts = wrapped(line, width)

    assert (
        "".join(parts).split() == line.split()
        or [word for part in parts for word in part.split()] == line.split()
    )
    whole = re.sub(r" (?=(?:[KMGTPE]i?)?B\b)", "_", line)  # a number stays with its unit
    widest = max(map(len, whole.split()), default=0)
    indent = len(line) - len(line.lstrip())
    assert max(map(len, parts)) <= max(width, indent + 1 + widest) or len(parts) == 1


def test_a_line_is_broken_between_clauses_before_words():
    assert wrapped("one two.  three four", 12) == ["one two.", "three four"]
    assert wrapped("one two.  three four", 20) == ["one two.  three four"]
    assert wrapped(" one two three", 9) == [" one two", "  three"]


def test_a_number_keeps_its_unit():
    assert wrapped("peak 67.2 KiB and 1.3 %", 8) == ["peak", " 67.2 KiB", " and", " 1.3 %"]
