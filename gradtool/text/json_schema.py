"""JSON Schemas (draft 2020-12), from the records of documents.

A record is a TypedDict or a dataclass. The description of a field is the text beside its type in
`Annotated`, or its line among the attributes of the docstring, whose beginning is the description
of the object; `Keywords` add constraints beyond the type.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
_LENGTH = ("minItems", "maxItems")
_ATTRIBUTE = re.compile(r"^    (\w+): (.+)$", re.MULTILINE)


class Keywords:
    """Keywords of a schema beside those of its type."""

    def __init__(self, **found: object) -> None:
        self.found = found


Count = Annotated[int, Keywords(minimum=0)]
Positive = Annotated[int, Keywords(minimum=1)]
Amount = Annotated[float, Keywords(minimum=0)]


def document_schema(records: Sequence[type], title: str, version: int) -> Schema:
    """The schema of a document: its version, and the fields of its record, or of one of several."""
    first = {"schema_version": {"const": version}}
    found = [schema_of(record) for record in records]
    for each in found:
        each["properties"] = first | each["properties"]
        each["required"] = [*first, *each["required"]]
    return {"$schema": DRAFT, "title": title, **_either(found)}


def schema_of(kind: Any) -> Schema:
    """The schema of a JSON type."""
    if (origin := get_origin(kind)) is not None:
        return _GENERIC[origin](*get_args(kind))
    if kind in (Any, object):
        return {}
    if kind in _TYPES:
        return {"type": _TYPES[kind]}
    if issubclass(kind, Enum):
        return schema_of(type(next(iter(kind)).value))
    return _object(kind)


def _annotated(kind: Any, *notes: str | Keywords) -> Schema:
    found = schema_of(kind)
    for note in notes:
        found |= note.found if isinstance(note, Keywords) else {"description": note}
    return found


def _literal(*values: object) -> Schema:
    return {"enum": list(values)}


def _union(*kinds: Any) -> Schema:
    return _either([schema_of(kind) for kind in kinds])


def _array(kind: Any) -> Schema:
    return {"type": "array", "items": schema_of(kind)}


def _tuple(*kinds: Any) -> Schema:
    if kinds[-1] is ...:
        return _array(kinds[0])
    items = [schema_of(kind) for kind in kinds]
    return {"type": "array", "prefixItems": items} | dict.fromkeys(_LENGTH, len(items))


def _mapping(name: Any, kind: Any) -> Schema:
    names = {} if name is str else {"propertyNames": schema_of(name)}
    return {"type": "object", **names, "additionalProperties": schema_of(kind)}


def _object(record: type) -> Schema:
    fields = get_type_hints(record, include_extras=True)
    docs = inspect.cleandoc(record.__doc__ or "")
    said = " ".join(docs.partition("\n\n")[0].split())
    attributes = dict(_ATTRIBUTE.findall(docs.partition("Attributes:\n")[2]))
    return {
        "type": "object",
        **({"description": said} if said else {}),
        "properties": {n: _described(k, attributes.get(n)) for n, k in fields.items()},
        "required": [n for n, kind in fields.items() if get_origin(kind) is not NotRequired],
        "additionalProperties": False,
    }


def _described(kind: Any, said: str | None) -> Schema:
    return schema_of(kind) | ({} if said is None else {"description": said[0].upper() + said[1:]})


def _either(found: Sequence[Schema]) -> Schema:
    """One schema if each keyword is of one type alone; a value that is null is one more."""
    if len(found) == 1:
        return found[0]
    null = {"type": "null"}
    others = [each for each in found if each != null]
    if len(others) == 1 and "enum" in others[0]:
        return others[0] | {"enum": [*others[0]["enum"], None]}
    keywords = [key for each in found for key in each if key != "type"]
    if len({*keywords}) < len(keywords) or not all("type" in each for each in found):
        return {"anyOf": list(found)}
    merged = {key: value for each in found for key, value in each.items()}
    return merged | {"type": [each["type"] for each in found]}


_GENERIC: Mapping[Any, Callable[..., Schema]] = {
    Annotated: _annotated,
    NotRequired: schema_of,
    Literal: _literal,
    Union: _union,
    UnionType: _union,
    Sequence: _array,
    list: _array,
    tuple: _tuple,
    dict: _mapping,
}
