"""What is remembered lies in folders of the user, and nobody else can make it."""

import os
import shutil

import pytest

from gradtool.io import remembered
from gradtool.io.remembered import PLANS, Shelf


def kept(home, shelf=PLANS):
    return home / shelf.kind / "gradtool" / shelf.name


def test_what_was_put_is_had_under_its_key_only():
    key = PLANS.key(b"model and options")

    PLANS.put(key, b"verdict")

    assert PLANS.get(key) == b"verdict"
    assert PLANS.get(PLANS.key(b"another model")) is None
    assert Shelf("cache", "other").get(key) is None
    assert PLANS.key(b"model and options") == key


def test_folders_and_files_are_for_nobody_else(home):
    PLANS.put(PLANS.key(b"a"), b"1")

    everything = [home, *home.rglob("*")]
    assert {p.stat().st_mode & 0o777 for p in everything if p.is_dir()} == {0o700}
    assert {p.stat().st_mode & 0o777 for p in everything if p.is_file()} == {0o600}


def test_folders_that_were_open_to_others_are_closed(home):
    kept(home).mkdir(parents=True, mode=0o777)
    kept(home).chmod(0o777)

    PLANS.put(PLANS.key(b"a"), b"1")

    assert kept(home).stat().st_mode & 0o777 == 0o700


def _foreign(path):
    """An entry as it is on another machine, under the name that it has here."""
    path.write_bytes(b"0" * 64 + b"verdict")


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "torn": lambda path: os.truncate(path, 70),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"!"),
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b"verdict", b"VERDICT")),
    "of another": lambda path: shutil.copy(path.with_name(PLANS.key(b"b")), path),
    "made elsewhere": _foreign,
    "a link": lambda path: (path.rename(path.parents[1] / "x"), path.symlink_to("../x")),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_entry_that_somebody_touched_is_none(home, damage):
    key = PLANS.key(b"a")
    PLANS.put(key, b"verdict")
    PLANS.put(PLANS.key(b"b"), b"other")

    DAMAGES[damage](kept(home) / key)

    assert PLANS.get(key) is None
    PLANS.put(key, b"again")
    assert PLANS.get(key) == (None if damage == "a folder" else b"again")


SECRETS = {
    "gone": lambda path: path.unlink(),
    "short": lambda path: path.write_bytes(b"1"),
    "known to others": lambda path: path.chmod(0o644),
    "a link": lambda path: (path.rename(path.with_name("x")), path.symlink_to("x")),
    "another name as well": lambda path: path.with_name("x").hardlink_to(path),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", SECRETS)
def test_a_secret_that_is_none_is_replaced_and_what_it_vouched_for_forgotten(home, damage):
    key = PLANS.key(b"a")
    PLANS.put(key, b"verdict")
    path = home / "state/gradtool/secret"
    before = path.read_bytes()

    SECRETS[damage](path)

    assert PLANS.get(key) is None
    assert path.read_bytes() != before
    assert path.stat().st_mode & 0o777 == 0o600
    PLANS.put(PLANS.key(b"a"), b"again")
    assert PLANS.get(PLANS.key(b"a")) == b"again"


def test_no_more_is_kept_than_the_newest(home):
    shelf = Shelf("cache", "few", most=3)
    keys = [shelf.key(bytes([n])) for n in range(5)]
    for number, key in enumerate(keys):
        shelf.put(key, b"1")
        os.utime(kept(home, shelf) / key, ns=(number, number))

    shelf.put(shelf.key(b"last"), b"2")

    assert {path.name for path in kept(home, shelf).iterdir()} == {*keys[3:], shelf.key(b"last")}


def test_no_more_bytes_are_kept_than_a_few(home, monkeypatch):
    monkeypatch.setattr(remembered, "MOST_BYTES", 1000)
    for number in range(9):
        PLANS.put(PLANS.key(bytes([number])), bytes(200))
    PLANS.put(PLANS.key(b"too large"), bytes(600))

    assert len(list(kept(home).iterdir())) == 3
    assert PLANS.get(PLANS.key(b"too large")) is None


def _linked(home):
    home.mkdir(parents=True)
    (home.parent / "elsewhere").mkdir(exist_ok=True)
    (home / "gradtool").symlink_to(home.parent / "elsewhere")


HOMES = {
    "a file": lambda home: home.write_text(""),
    "gradtool is a link": _linked,
    "gradtool is a pipe": lambda home: (home.mkdir(parents=True), os.mkfifo(home / "gradtool")),
    "gradtool is a file": lambda home: (home.mkdir(parents=True), (home / "gradtool").touch()),
}


@pytest.mark.parametrize("kind", HOMES)
@pytest.mark.parametrize("which", ["cache", "state"])
def test_a_home_that_cannot_be_written_to_has_no_memory(home, which, kind):
    home.mkdir(parents=True)
    HOMES[kind](home / which)

    key = PLANS.key(b"a")
    if key is not None:
        PLANS.put(key, b"1")
        assert PLANS.get(key) is None

    assert (key is None) == (which == "state")
    assert not list(home.glob("elsewhere/*"))


def test_a_read_only_home_has_no_memory(home):
    home.mkdir(parents=True)
    home.chmod(0o500)
    if os.access(home, os.W_OK):
        pytest.skip("who runs this may write everywhere")

    assert PLANS.key(b"a") is None
    home.chmod(0o700)


@pytest.mark.parametrize("given", ["state", "./state", "../state", ".", ""])
def test_a_path_from_here_is_no_home(tmp_path, monkeypatch, given):
    """It lies anywhere, and XDG says to ignore it."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", given)

    PLANS.key(b"a")

    assert not list(tmp_path.glob("here/*"))
    assert not (tmp_path / "state").exists()


def test_another_users_folder_is_no_home(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    assert PLANS.key(b"a") is None


def test_a_full_disk_leaves_nothing(home, monkeypatch):
    key = PLANS.key(b"a")
    PLANS.put(key, b"1")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(remembered, "_private", full)
    PLANS.put(key, b"2")

    assert PLANS.get(key) == b"1"
    assert [path.name for path in kept(home).iterdir()] == [key]


def test_nothing_is_remembered_in_continuous_integration(home, monkeypatch):
    monkeypatch.setenv("CI", "true")

    assert PLANS.key(b"a") is None
    assert not home.exists()
