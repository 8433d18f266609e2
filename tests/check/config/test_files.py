"""Where a configuration is looked for."""

from __future__ import annotations

import pytest

from gradtool.check.config import find
from gradtool.check.config.files import read
from gradtool.errors import UsageError


def test_the_nearest_one_of_a_repository_is_found(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.gradtool]\n")
    assert find(inside) == tmp_path / "pyproject.toml"

    (tmp_path / "a" / "gradtool.toml").write_text("")
    assert find(inside) == tmp_path / "a" / "gradtool.toml"


def test_a_file_of_its_own_comes_before_pyproject(tmp_path):
    (tmp_path / "gradtool.toml").write_text("")
    (tmp_path / "pyproject.toml").write_text("[tool.gradtool]\n")

    assert find(tmp_path) == tmp_path / "gradtool.toml"


def test_projects_of_others_are_passed_by(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")

    assert find(tmp_path) is None


def test_nothing_above_a_repository_is_read_and_nothing_above_a_plain_folder(tmp_path):
    (tmp_path / "gradtool.toml").write_text("")
    inside = tmp_path / "a"
    inside.mkdir()
    assert find(inside) is None

    (inside / ".git").mkdir()
    assert find(inside) is None


BAD = {
    "no section": ("pyproject.toml", b"[tool.ruff]\n", "has no [tool.gradtool]"),
    "no table": ("pyproject.toml", b"[tool]\ngradtool = 3\n", "tool.gradtool is no table"),
    "no UTF-8": ("gradtool.toml", b"\xff", "is not UTF-8"),
    "nested": ("gradtool.toml", b"a = " + b"[" * 100_000, ": is n"),
    "large": ("gradtool.toml", b"#" * ((1 << 22) + 1), "is too large"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_refused(tmp_path, name):
    file, data, message = BAD[name]
    (tmp_path / file).write_bytes(data)

    with pytest.raises(UsageError) as raised:
        read(tmp_path / file)

    assert message in str(raised.value)


def test_the_lines_of_cases_are_known_in_both_spellings(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text("[tool.gradtool.check]\n\n[[tool.gradtool.case]]\nmodel='a'\n"
                    "[[ tool . gradtool . case ]]\nmodel='b'\n")  # fmt: skip

    assert read(path)[1] == [3, 5]
