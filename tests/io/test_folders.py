"""Several files of one folder replaced at once; `test_kills.py` has what a kill leaves."""

import pytest

from gradtool.errors import UsageError
from gradtool.io import folders

FILES = {"a.json": b"1", "b.json": b"2"}


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_made_with_those_around_it(tmp_path):
    folders.write(tmp_path / "x" / "y", FILES)

    assert content(tmp_path / "x" / "y") == FILES


def test_what_else_is_in_the_folder_stays(tmp_path):
    (tmp_path / "y" / "deep").mkdir(parents=True)
    (tmp_path / "y" / "deep" / "own").write_text("kept")
    (tmp_path / "y" / "a.json").write_text("old")
    folders.write(tmp_path / "y", FILES)

    assert (tmp_path / "y" / "deep" / "own").read_text() == "kept"
    assert (tmp_path / "y" / "a.json").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["y"]


def test_a_link_to_a_folder_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folders.write(tmp_path / "link", FILES)

    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "real") == FILES


def test_a_file_takes_the_place_of_a_link(tmp_path):
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / "a.json").symlink_to("../elsewhere")
    (tmp_path / "elsewhere").touch()
    folders.write(tmp_path / "y", FILES)

    assert not (tmp_path / "y" / "a.json").is_symlink()
    assert (tmp_path / "y" / "a.json").read_bytes() == b"1"
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_a_file_in_the_place_of_the_folder_is_not_replaced(tmp_path):
    (tmp_path / "y").write_text("precious")
    with pytest.raises(UsageError, match="y: cannot be made: File exists"):
        folders.write(tmp_path / "y", FILES)

    assert (tmp_path / "y").read_text() == "precious"


def test_a_folder_in_the_place_of_a_file_is_not_replaced(tmp_path):
    (tmp_path / "y" / "a.json").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"a\.json: is a folder"):
        folders.write(tmp_path / "y", FILES)


def test_permissions_of_files_are_kept(tmp_path):
    folders.write(tmp_path / "y", FILES)
    (tmp_path / "y" / "a.json").chmod(0o640)
    folders.write(tmp_path / "y", {"a.json": b"3", "b.json": b"4"})

    assert (tmp_path / "y" / "a.json").stat().st_mode & 0o777 == 0o640


def test_where_folders_cannot_be_exchanged_each_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_exchange", lambda *_: False)
    (tmp_path / "y").mkdir()
    folders.write(tmp_path / "y", FILES)

    assert content(tmp_path / "y") == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["y"]
