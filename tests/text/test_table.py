import csv as csv_module
import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from gradtool.text.layout import LONGEST, Column
from gradtool.text.table import Table, csv, markdown, render

COLUMNS = (
    Column("tensor", kind="name"),
    Column("region"),
    Column("bytes", "right", "number"),
)
SMALL = Table(
    COLUMNS,
    (("conv1.weight", "parameters", "36.8 KiB"), ("x", "inputs", "4.59 MiB")),
    title="alive",
    footer="planned\nnot measured",
)
HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "[bold red]x[/] [link=http://example.com]y[/link] :smile:",
    "a|b `c` <b>",
    "one\r\ntwo",
    "\u202egnp.exe\u200f",
    "::error::x",
    "##[error]x",
    "=1+1",
    "重" * 500,
    "x" * 10_000,
)


def lines(table, width=80, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    render(table, Console(file=stream, width=width, height=25, color_system=None))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding).splitlines()


def test_a_header_one_rule_and_rows():
    assert lines(SMALL) == [
        "alive",
        " tensor         region          bytes",
        " ────────────────────────────────────",
        " conv1.weight   parameters   36.8 KiB",
        " x              inputs       4.59 MiB",
        "planned",
        "not measured",
    ]


def test_ascii_has_an_ascii_rule():
    assert lines(SMALL, encoding="ascii")[2] == " ------------------------------------"


def test_a_table_without_rows_keeps_its_header():
    assert lines(Table(COLUMNS, ())) == [
        " tensor   region   bytes",
        " ───────────────────────",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_at_80_columns_a_name_is_one_line_and_numbers_are_whole(name, encoding):
    table = Table(COLUMNS, ((name, "activations", "123.4 GiB"), ("y", "inputs", "5 B")))

    shown = lines(table, encoding=encoding)
    assert len(shown) == 4
    assert all(cell_len(line) <= 80 for line in shown)
    assert shown[2].endswith("activations   123.4 GiB")
    assert all(line.isprintable() for line in shown)


def test_long_names_lose_their_middle():
    shown = lines(Table(COLUMNS, (("head" + "x" * 100 + "tail", "inputs", "5 B"),)))

    assert cell_len(shown[2]) == 80
    assert shown[2].startswith(" headxxx")
    assert shown[2].endswith("xxxtail   inputs     5 B")
    assert shown[2].count("…") == 1


def test_two_name_columns_share_what_there_is():
    columns = (Column("a", kind="name"), Column("b", kind="name"), Column("n", "right", "number"))
    shown = lines(Table(columns, (("a" * 100, "b" * 30, "1"),)))

    assert shown[2].count("…") == 1
    assert "b" * 30 in shown[2]
    assert cell_len(shown[2]) == 80


WIDE = Table(
    (Column("model", kind="name"), *(Column(f"bytes of {c}", "right", "number") for c in "abcdef")),
    (("head" + "x" * 40 + "tail", *["123.4 GiB"] * 6), ("y", *[f"{n} B" for n in range(6)])),
)


def test_columns_move_together_and_titles_wrap_before_columns_are_parted():
    shown = lines(WIDE, width=79)

    assert shown[0].split() == ["bytes", "of"] * 6
    assert shown[1].split() == ["model", *"abcdef"]
    assert shown[3].count("123.4 GiB") == 6


def test_columns_without_room_follow_below_beside_the_first():
    shown = "\n".join(lines(WIDE, width=40)).split("\n\n")

    assert [block.split("\n")[-1].split() for block in shown] == [
        ["y", "0", "B", "1", "B"],
        ["y", "2", "B", "3", "B"],
        ["y", "4", "B", "5", "B"],
    ]


@pytest.mark.parametrize("width", range(26, 130))
def test_numbers_are_never_cut_however_narrow_the_console(width):
    shown = lines(WIDE, width=width)

    assert max(map(cell_len, shown)) <= width
    assert "\n".join(shown).count("123.4 GiB") == 6


REASONS = Table(
    (Column("tensor", kind="name"), Column("bytes", "right", "number"), Column("why")),
    (("conv", "5 B", "new operator: it draws at random"), ("x", "123.4 GiB", "held now")),
)


def test_text_in_the_last_column_continues_below_itself():
    assert lines(REASONS, width=42) == [
        " tensor       bytes   why",
        " ─────────────────────────────────────────",
        " conv           5 B   new operator: it",
        "                       draws at random",
        " x        123.4 GiB   held now",
    ]


@pytest.mark.parametrize("width", range(36, 100))
def test_wrapping_loses_no_word_and_fits(width):
    shown = lines(REASONS, width=width)

    assert max(map(cell_len, shown)) <= width
    assert " ".join(" ".join(shown[2:]).split()) == " ".join(
        word for row in REASONS.rows for word in " ".join(row).split()
    )


def test_in_a_pipe_names_are_whole():
    shown = lines(Table(COLUMNS, (("x" * 150, "activations", "5 B"),)), width=100_000)

    assert "x" * 150 in shown[2]


def test_no_name_is_endless_even_in_a_pipe():
    shown = lines(Table(COLUMNS, (("x" * 10_000, "activations", "5 B"),)), width=100_000)

    assert cell_len(shown[2]) < LONGEST + 40


def test_markdown_aligns_numbers_and_escapes_names():
    assert markdown(Table(COLUMNS, (("a|b\n`c`", "inputs", "5 B"),), "t<1>", "one\ntwo")) == (
        "**t&#60;1&#62;**\n"
        "\n"
        "| tensor | region | bytes |\n"
        "| --- | --- | ---: |\n"
        "| a&#124;b\\x0a&#96;c&#96; | inputs | 5 B |\n"
        "\n"
        "one  \n"
        "two\n"
    )


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_markdown_keeps_its_columns(name):
    row = markdown(Table(COLUMNS, ((name, "inputs", "5 B"),))).splitlines()[2]

    assert row.count("|") == 4
    assert row.endswith("| inputs | 5 B |")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_csv_reads_back_as_one_row_without_formulas(name):
    text = csv(Table(COLUMNS, ((name, 'a "quoted", word', "-5 B"),)))

    assert len(text.splitlines()) == 2
    header, row = csv_module.reader(io.StringIO(text))
    assert header == ["tensor", "region", "bytes"]
    assert row[1:] == ['a "quoted", word', "-5 B"]
    assert not row[0].startswith("=")


def test_a_row_has_one_cell_a_column():
    with pytest.raises(ValueError, match="a row of 2 cells in a table of 3"):
        Table(COLUMNS, (("x", "y"),))
