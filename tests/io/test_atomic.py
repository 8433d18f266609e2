"""Files to write: what is refused before any work is done."""

import re

import pytest

from gradtool.errors import UsageError
from gradtool.io import atomic


@pytest.mark.parametrize("name", ["m.onnx", "m.onnxtxt"])
def test_a_report_is_never_written_over_a_model(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"weights")

    with pytest.raises(UsageError, match=r"--html .*: that is the name of a model"):
        atomic.require_targets({"--html": path}, force=True)
    with pytest.raises(UsageError) as caught:
        atomic.require_targets({"--html": path}, force=False)

    assert "--force" not in str(caught.value)
    assert path.read_bytes() == b"weights"


def test_two_flags_cannot_name_one_file(tmp_path):
    (tmp_path / "link").symlink_to("a")

    with pytest.raises(UsageError, match="--html and --trace name the same file"):
        atomic.require_targets({"--html": tmp_path / "a", "--trace": tmp_path / "link"}, force=True)


def test_each_file_is_checked_as_if_it_were_alone(tmp_path):
    taken = tmp_path / "taken"
    taken.touch()

    with pytest.raises(UsageError, match=re.escape(f"{taken} exists; pass --force")):
        atomic.require_targets({"--html": tmp_path / "a", "--trace": taken}, force=False)
    atomic.require_targets({"--html": tmp_path / "a", "--trace": taken}, force=True)
