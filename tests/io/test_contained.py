"""Files of names that gradtool gives: what lies in their place is left alone."""

import os

import pytest

from gradtool.errors import UsageError
from gradtool.io import atomic, contained
from gradtool.io.documents import read_document, write_document

SAID = {
    "link": "it is a link",
    "dangling": "it is a link",
    "pipe": "not a regular file",
    "folder": "not a regular file",
}


def place(tmp_path, kind):
    """A path with something in its place, and the file it might lead to."""
    decoy, path = tmp_path / "decoy", tmp_path / "run" / "name.json"
    decoy.write_bytes(b"mine")
    path.parent.mkdir()
    match kind:
        case "link":
            path.symlink_to(decoy)
        case "dangling":
            path.symlink_to(tmp_path / "new")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "hard link":
            path.hardlink_to(decoy)
    return path, decoy


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("use", [contained.opened, contained.appended])
def test_what_is_no_file_is_neither_read_nor_added_to(tmp_path, kind, use):
    path, decoy = place(tmp_path, kind)

    with pytest.raises(OSError, match=SAID[kind]):
        use(path)

    assert decoy.read_bytes() == b"mine"
    assert not (tmp_path / "new").exists()


def test_a_file_with_another_name_is_read_but_not_added_to(tmp_path):
    path, decoy = place(tmp_path, "hard link")

    with contained.opened(path) as file:
        assert file.read() == b"mine"
    with pytest.raises(OSError, match="another name"):
        contained.appended(path, 0)

    assert decoy.read_bytes() == b"mine"


def test_a_link_that_the_user_named_is_followed(tmp_path):
    path, decoy = place(tmp_path, "link")

    with contained.opened(path, own=False) as file:
        assert file.read() == b"mine"
    with contained.appended(path, own=False) as file:
        file.write(b" and more")

    assert decoy.read_bytes() == b"mine and more"


@pytest.mark.parametrize("own", [True, False])
def test_a_pipe_is_refused_without_waiting_for_its_other_end(tmp_path, own):
    path, _ = place(tmp_path, "pipe")

    with pytest.raises(OSError, match="not a regular file"):
        contained.opened(path, own=own)


@pytest.mark.parametrize(
    ("size", "left"), [(None, b"0123+"), (2, b"01+"), (4, b"0123+"), (9, b"0123+")]
)
def test_a_file_is_cut_and_added_to(tmp_path, size, left):
    path = tmp_path / "journal"
    path.write_bytes(b"0123")

    with contained.appended(path, size) as file:
        file.write(b"+")
        assert file.tell() == len(left)

    assert path.read_bytes() == left


def test_a_file_is_made_where_there_is_none(tmp_path):
    with contained.appended(tmp_path / "journal", 7) as file:
        file.write(b"first")

    assert (tmp_path / "journal").read_bytes() == b"first"


def test_without_handles_of_folders_paths_do(tmp_path, monkeypatch):
    path, decoy = place(tmp_path, "link")
    monkeypatch.setattr(os, "supports_dir_fd", set())

    with pytest.raises(OSError, match="it is a link"):
        contained.appended(path)
    with contained.appended(path.with_name("other")) as file:
        file.write(b"1")

    assert (decoy.read_bytes(), path.with_name("other").read_bytes()) == (b"mine", b"1")


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "hard link"])
def test_a_whole_file_takes_the_place_of_what_was_there(tmp_path, kind):
    path, decoy = place(tmp_path, kind)

    write_document({"schema_version": 1}, path, force=True, own=True)

    assert read_document(path, 1, own=True) == {"schema_version": 1}
    assert path.is_file()
    assert not path.is_symlink()
    assert decoy.read_bytes() == b"mine"
    assert not (tmp_path / "new").exists()


def test_a_folder_in_the_place_of_a_file_stays(tmp_path):
    path, _ = place(tmp_path, "folder")

    with pytest.raises(UsageError, match="is a folder"):
        write_document({"schema_version": 1}, path, force=True, own=True)

    assert path.is_dir()


def test_what_was_replaced_by_files_that_fail_together_is_put_back(tmp_path):
    path, decoy = place(tmp_path, "link")
    (path.parent / "blocked").mkdir()
    outputs = [
        atomic.Output(path, lambda file: file.write(b"new")),
        atomic.Output(path.parent / "blocked", lambda file: file.write(b"new")),
    ]

    with pytest.raises(UsageError, match="blocked: cannot be written"):
        atomic.write(outputs)

    assert path.is_symlink()
    assert decoy.read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_called_as_a_folder_of_ours_stops_no_write(tmp_path, kind):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    left = tmp_path / ".gradtool-0123456789ab"
    left.symlink_to(tmp_path / "elsewhere") if kind == "link" else os.mkfifo(left)

    atomic.write([atomic.Output(tmp_path / "a", lambda file: file.write(b"1"))])

    assert (tmp_path / "elsewhere" / "file").exists()


def test_a_folder_of_ours_is_made_through_no_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").touch()

    assert contained.made(tmp_path / "new").is_dir()
    assert contained.made(tmp_path / "new").is_dir()
    with pytest.raises(OSError, match="it is a link"):
        contained.made(tmp_path / "link")
    with pytest.raises(OSError, match="not a folder"):
        contained.made(tmp_path / "file")
