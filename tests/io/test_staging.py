"""Hidden folders in which files are made ready, and what becomes of those left behind."""

import os

import pytest

from gradtool.io import staging

pytestmark = pytest.mark.skipif(staging.fcntl is None, reason="needs locks of files")


def test_a_folder_that_nobody_holds_is_removed_by_the_next_writer(tmp_path):
    left = tmp_path / f"{staging.PREFIX}0123"
    left.mkdir()
    (left / "0.new").write_text("half")

    with staging.staging(tmp_path) as mine:
        assert [path.name for path in tmp_path.iterdir()] == [mine.name]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_a_writer_holds_stays(tmp_path):
    with staging.staging(tmp_path) as mine:
        (mine / "0.new").write_text("half")
        staging.sweep(tmp_path)

        assert (mine / "0.new").exists()


def test_two_writers_have_folders_of_their_own(tmp_path):
    with staging.staging(tmp_path) as one, staging.staging(tmp_path) as other:
        assert one != other
        assert one.is_dir()
        assert other.is_dir()


def test_a_lock_ends_with_its_holder(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("needs processes that fork")
    child = os.fork()
    if child == 0:
        with staging.staging(tmp_path):
            os._exit(0)
    os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 1
    staging.sweep(tmp_path)

    assert not list(tmp_path.iterdir())
