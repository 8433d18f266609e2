"""Schemas of types and records."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema
import pytest

from gradtool.text.json_schema import Count, Keywords, document_schema, schema_of


class Word(Enum):
    ONE = "one"


@dataclass
class Point:
    """A point."""

    at: tuple[int, float | None]
    word: Word


class Base(TypedDict):
    size: Count
    kind: Literal["a", "b"] | None


class Record(Base):
    """A record
    of two lines.

    More is not told.
    """

    points: Annotated[list[Point], "In order."]
    named: NotRequired[dict[Literal["x"], tuple[str, ...]]]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (bool, {"type": "boolean"}),
        (Any, {}),
        (int | None, {"type": ["integer", "null"]}),
        (Count | str | None, {"type": ["integer", "string", "null"], "minimum": 0}),
        (Literal["a"] | None, {"enum": ["a", None]}),
        (Annotated[str, "Text.", Keywords(pattern="x")],
         {"type": "string", "description": "Text.", "pattern": "x"}),
        (list[int] | list[str],
         {"anyOf": [{"type": "array", "items": {"type": each}} for each in ("integer", "string")]}),
        (dict[str, object], {"type": "object", "additionalProperties": {}}),
    ],
)  # fmt: skip
def test_a_type_has_a_schema(kind, schema):
    assert schema_of(kind) == schema


def test_a_record_is_closed_and_says_what_is_required():
    found = schema_of(Record)

    assert found["description"] == "A record of two lines."
    assert found["required"] == ["size", "kind", "points"]
    assert found["properties"]["points"]["description"] == "In order."
    assert found["properties"]["points"]["items"]["description"] == "A point."


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"size": -1}, False),
        ({"kind": "c"}, False),
        ({"points": [{"at": [1, None, 2], "word": "one"}]}, False),
        ({"points": [{"at": [1, 2.5], "word": 1}]}, False),
        ({"named": {"x": ["a"]}}, True),
        ({"named": {"y": ["a"]}}, False),
        ({"other": 1}, False),
        ({"schema_version": 2}, False),
    ],
)
def test_a_document_is_judged_by_its_record(change, fits):
    schema = document_schema([Record, Point], "title", 3)
    right = {"schema_version": 3, "size": 0, "kind": None}
    right |= {"points": [{"at": [1, 2.5], "word": "one"}]}

    assert jsonschema.Draft202012Validator(schema).is_valid({**right, **change}) == fits
