"""Places in the file of tensors made by a pass, which have no tensor of their name there.

Coefficients of a linear model are an attribute of its node there; a running statistic that the
exporter took for another tensor, because both were equal, becomes an input of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Location:
    """A place at a node: an attribute of floats, or an input.

    The attribute has the tensor's columns one after the other.  `mirrored`: it begins with the
    opposite of them all.
    """

    node: Annotated[str, "A value that the node writes."]
    attribute: Annotated[str, "Its attribute; empty where the tensor is an input."] = ""
    slot: int = 0
    mirrored: bool = False


def read_locations(found: Mapping[str, Any]) -> dict[str, Location]:
    """The locations in JSON, by tensor.

    Raises:
        TypeError: they are none.
        AttributeError: likewise.
    """
    locations = {name: Location(**entry) for name, entry in found.items()}
    for each in locations.values():
        texts, whole = (each.node, each.attribute), type(each.slot) is int and each.slot >= 0
        if not (whole and all(isinstance(text, str) for text in texts)):
            raise TypeError(f"{each} is no location")
    return locations
