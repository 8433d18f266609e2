"""JSON files of ours: written whole, read without trust."""

import json

import pytest

from gradtool.errors import UsageError
from gradtool.io.documents import is_number, is_text, is_whole, read_document, write_document


@pytest.fixture
def path(tmp_path):
    return tmp_path / "d.json"


def test_what_is_written_is_read(path):
    document = {"schema_version": 3, "name": "\u2028é", "sizes": [1, 2.5]}
    size = write_document(document, path)

    assert read_document(path, 3) == document
    assert path.stat().st_size == size
    assert path.read_bytes().isascii()


def test_a_file_is_not_overwritten_by_accident(path):
    path.write_text("mine")

    with pytest.raises(UsageError, match="exists; pass --force"):
        write_document({}, path)
    write_document({"schema_version": 1}, path, force=True)

    assert json.loads(path.read_text()) == {"schema_version": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no JSON"),
        ("\x00", "is no JSON"),
        ("[" * 200_000, "is nested too deeply"),
        ('{"a": ' + "9" * 6000 + "}", "is no JSON to be read: a number has too many digits$"),
        ('{"schema_version": ' + "9" * 4000 + "}", "has no schema_version 1$"),
        ("[1]", "is no JSON object"),
        ("{}", "has no schema_version 1"),
        ('{"schema_version": true}', "has no schema_version 1"),
        ('{"schema_version": 2}', "has no schema_version 1; it has 2, of another gradtool"),
    ],
)
def test_what_is_no_document_is_one_line(path, text, message):
    path.write_text(text)

    with pytest.raises(UsageError, match=message) as caught:
        read_document(path, 1)

    assert "\n" not in str(caught.value)


def test_a_missing_file_and_one_that_is_no_text(path):
    with pytest.raises(UsageError, match="No such file"):
        read_document(path, 1)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(UsageError, match="is no JSON"):
        read_document(path, 1)


def test_a_huge_file_is_refused_unread(path):
    with path.open("wb") as file:
        file.truncate(1 << 30)

    with pytest.raises(UsageError, match="is too large"):
        read_document(path, 1)


def test_numbers_are_finite_and_no_truth_values():
    assert [is_number(x) for x in (1, 1.5, True, float("nan"), float("inf"), 1 << 80, "1")] == [
        True, True, False, False, False, False, False,
    ]  # fmt: skip
    assert [is_whole(x) for x in (1, 1.0, False)] == [True, False, False]
    assert [is_text(x) for x in ("", None)] == [True, False]
