"""Where a tensor that a pass has made belongs in the file, which has no tensor of that name.

Coefficients of a linear model are an attribute of its node there; a running statistic that the
exporter took for another tensor, because both were equal, becomes an input of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from gradtool.graph.metadata import LOCATIONS


@dataclass(frozen=True)
class Location:
    """A place at the node that writes the value `node`: an attribute of floats, or an input.

    The attribute has the tensor's columns one after the other.  `mirrored`: it begins with the
    opposite of them all.
    """

    node: str
    attribute: str = ""
    slot: int = 0
    mirrored: bool = False


def locations_of(model: ir.Model) -> dict[str, Location]:
    """The locations that were noted, by tensor."""
    return from_json(json.loads(model.metadata_props.get(LOCATIONS, "{}")))


def note(model: ir.Model, name: str, node: ir.Node, **place: Any) -> None:
    """Write a place at a node into the metadata of a model."""
    written = next((v.name for v in node.outputs if v.name), "")
    found = locations_of(model) | {name: Location(written, **place)}
    model.metadata_props[LOCATIONS] = json.dumps(to_json(found))


def to_json(locations: Mapping[str, Location]) -> dict[str, Any]:
    """Locations as JSON has them."""
    return {name: asdict(location) for name, location in locations.items()}


def from_json(found: Mapping[str, Any]) -> dict[str, Location]:
    """The locations that `to_json` wrote."""
    return {name: Location(**entry) for name, entry in found.items()}
