"""TOML that cannot be read is one line."""

import pytest

from gradtool.errors import UsageError
from gradtool.text import toml


def test_the_tables_of_a_text():
    assert toml.parsed("[a]\nb = 1", "x.toml") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "x.toml: is no TOML: Invalid value"),
        ("a = " + "9" * 6000, "x.toml: is no TOML to be read: a number has too many digits"),
        ("a = " + "[" * 100_000, "x.toml: is nested too deeply"),
    ],
)
def test_what_is_no_toml_is_one_line_that_names_the_file(text, message):
    with pytest.raises(UsageError, match=message) as caught:
        toml.parsed(text, "x.toml")

    assert "\n" not in str(caught.value)
    assert "set_int_max_str_digits" not in str(caught.value)
