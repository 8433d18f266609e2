import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtool.check import starter
from gradtool.check.config.cases import cases_of
from gradtool.errors import UsageError

HERE = Path("pyproject.toml")
CASE = {"name": "net", "model": "net.onnx", "dims": {"batch": 8}, "plan": "mirror"}
PROJECT = """# a project
[project]
name = "x"  # its name

[tool.ruff]
line-length = 100
"""
LINES = ("# a\n", "# b\r\n", "\n", "\r\n", " \t\n", "[project]\r\n", "[tool.ruff]\n")
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def section(*cases):
    return starter.configuration(cases or [CASE], {}, shared=True)


@given(name=texts, model=texts, symbol=texts, size=st.integers(1, 2**40), why=texts)
def test_any_name_is_read_back(name, model, symbol, size, why):
    case = {"name": name, "model": model, "dims": {symbol: size}, "plan": name}

    text = starter.configuration([case, CASE], {model: why}, shared=False)

    assert tomllib.loads(text)["case"] == [case, CASE]


def test_a_file_of_its_own_has_short_headers():
    text = starter.configuration([CASE], {}, shared=False)

    assert list(tomllib.loads(text)) == ["check", "case"]


def test_a_model_without_a_case_is_a_comment():
    text = starter.configuration([CASE], {"odd.onnx": "no gradient\nfor Foo"}, shared=False)

    assert "# odd.onnx has no case: no gradient for Foo\n" in text


def test_a_file_keeps_its_lines_before_what_is_added():
    text = starter.added_to(PROJECT, section(), HERE)

    assert text == f"{PROJECT}\n{section()}"


def test_an_empty_file_gets_the_section_alone():
    assert starter.added_to("", section(), HERE) == section()


@pytest.mark.parametrize("after", ["", "\n# of ruff\n[tool.ruff]\nselect = [\n  'ALL',\n]\n"])
def test_a_section_is_replaced_where_it_stands_between_others(after):
    before = '[project]\nname = "x"\n\n'
    old = section({**CASE, "name": "old"})

    text = starter.added_to(before + old + after, section(), HERE)

    assert text == f"{before}{after}".rstrip() + f"\n\n{section()}"


def test_a_file_keeps_its_line_ends():
    text = starter.added_to(PROJECT.replace("\n", "\r\n"), section(), HERE)

    assert text == f"{PROJECT}\n{section()}".replace("\n", "\r\n")


@given(st.lists(st.sampled_from(LINES), unique=True), st.booleans())
def test_every_byte_of_a_file_stays(lines, ended):
    text = "".join(lines)
    text = text if ended else text.removesuffix("\n").removesuffix("\r")

    once = starter.added_to(text, section(), HERE)

    assert once.startswith(text)
    assert once.replace("\r\n", "\n").endswith(section())
    assert starter.added_to(once, section(), HERE) == once


def test_what_is_added_ends_its_lines_as_the_last_line_does():
    mixed = "[a]\r\nb = 1\nc = 2\r\n"

    text = starter.added_to(mixed, section(), HERE)

    assert text == mixed + "\r\n" + section().replace("\n", "\r\n")


def test_replacing_twice_is_replacing_once():
    once = starter.added_to(PROJECT, section(), HERE)

    assert starter.added_to(once, section(), HERE) == once


@pytest.mark.parametrize(
    "text",
    [
        "tool.gradtool.check.baseline = 'b'\n",
        "[tool]\ngradtool = { check = { baseline = 'b' } }\n",
        "[tool.gradtool.check]\nbaseline = '''\n[project]\n'''\n[project]\nname = 'x'\n",
    ],
)
def test_a_section_that_is_no_lines_of_its_own_is_left_alone(text):
    with pytest.raises(UsageError, match=r"cannot be replaced: take it out by hand"):
        starter.added_to(text, section(), HERE)


def test_cases_are_named_after_files_and_where_that_is_not_enough_after_folders():
    models = ["a/net.onnx", "b/Net.onnx", "c/other.onnx"]

    assert starter.case_names(models) == ["a-net", "b-Net", "other"]


@given(st.lists(texts.map(lambda text: f"{text}.onnx"), unique=True, max_size=8))
def test_every_name_is_one_that_a_case_may_have_and_no_two_are_alike(models):
    names = starter.case_names(models)

    assert len({name.casefold() for name in names}) == len(models)
    for name, model in zip(names, models, strict=True):
        table = {"name": name, "model": model}
        assert [case.name for case in cases_of(table, HERE, 1, 1, [])] == [name]


def test_models_are_found_below_but_not_in_environments(tmp_path):
    for name in (
        "z.onnx",
        "models/a.onnx",
        ".hidden/b.onnx",
        "env/lib/c.onnx",
        "build/d.onnx",
        "models/readme.md",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "env" / "pyvenv.cfg").touch()

    assert starter.models_below(tmp_path) == ["models/a.onnx", "z.onnx"]


def test_too_many_models_are_refused(tmp_path):
    for number in range(starter.MOST_MODELS + 1):
        (tmp_path / f"{number}.onnx").touch()

    with pytest.raises(UsageError, match=r"there are 65 \.onnx files here and below"):
        starter.models_below(tmp_path)
