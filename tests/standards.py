"""What the standards of others demand of a document, checked by the schemas of `schemas/`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jsonschema
from lxml import etree

FOLDER = Path(__file__).parent / "schemas"


@cache
def _sarif() -> jsonschema.Draft7Validator:
    schema = json.loads((FOLDER / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


@cache
def _junit() -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(FOLDER / "junit-10.xsd"))


def sarif_mistakes(text: str) -> list[str]:
    """Where a text departs from SARIF 2.1.0."""
    return [f"{e.json_path}: {e.message}" for e in _sarif().iter_errors(json.loads(text))]


def junit_mistakes(text: str) -> list[str]:
    """Where a text departs from the JUnit XML that Jenkins reads."""
    schema = _junit()
    schema.validate(etree.fromstring(text.encode("utf-8")))
    return [f"line {error.line}: {error.message}" for error in schema.error_log]
