"""The facts of a training graph as one typed record, held as JSON by its model's metadata.

docs/architecture.md lists the content of each key.
"""
# ruff: noqa: RUF009 - `_fact` makes a field

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import ModelError
from gradtool.graph.lora import Adapter, read_adapters
from gradtool.graph.metadata import PREFIX

Names = Mapping[str, str]

ABSENT: Mapping[str, Any] = MappingProxyType({})  # not said by a model; {} is said


@dataclass(frozen=True)
class Location:
    """The place in the file of a tensor made by a pass under a new name.

    It is an attribute of floats or an input of a node.  The attribute has the tensor's columns one
    after the other; `mirrored`: it begins with the opposite of them all.
    """

    node: Annotated[str, "A value that the node writes."]
    attribute: Annotated[str, "Its attribute; empty where the tensor is an input."] = ""
    slot: int = 0
    mirrored: bool = False


def read_locations(found: Mapping[str, Any]) -> dict[str, Location]:
    """The locations that JSON has, by tensor.

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


@dataclass(frozen=True)
class OptimizerInfo:
    """The optimizer of a step: inputs by role, tables by rows, fixed settings."""

    name: str
    lr: str
    inputs: Names
    rows: tuple[str, ...]
    fixed: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        rows = {"rows": list(self.rows)} if self.rows else {}
        told = {"name": self.name, "lr": self.lr, "inputs": dict(self.inputs)}
        return {**told, **rows, **self.fixed}


@dataclass(frozen=True)
class Lower:
    """The loss and the gradients of the order below."""

    loss: str | None
    gradients: Names


def _held(kind: type, each: Any, found: Any) -> Any:
    """An object or a list whose elements are of a type."""
    elements = found.values() if isinstance(found, dict) else found
    if not isinstance(found, kind) or not all(isinstance(e, each) for e in elements):
        raise TypeError
    return found


_names, _object = partial(_held, dict, str), partial(_held, dict, object)


def _listed(found: Any) -> tuple[str, ...]:
    return tuple(_held(list, str, found))


def _numbers(found: Any) -> Any:
    """Numbers, or arrays of them, by name."""
    if not all(np.asarray(each).dtype.kind in "biuf" for each in _object(found).values()):
        raise TypeError
    return found


def _optimizer(found: Any) -> OptimizerInfo:
    fixed = dict(_object(found))
    name, lr = _listed([fixed.pop("name"), fixed.pop("lr")])
    inputs, rows = _names(fixed.pop("inputs")), _listed(fixed.pop("rows", []))
    return OptimizerInfo(name, lr, inputs, rows, fixed)


def _lower(found: Any) -> tuple[Lower, ...]:
    made = tuple(Lower(each["loss"], _names(each["gradients"])) for each in found)
    _held(list, str | None, [each.loss for each in made])
    return made


def _fact(read: Callable[[Any], Any] | None, absent: Any = None, key: str = "") -> Any:
    """A field, the check of its JSON, and its key if another; without a check it is a text."""
    how = {"read": read, "absent": absent, "key": key}
    return field(default_factory=lambda: absent, metadata=how)


@dataclass(frozen=True)
class TrainingInfo:
    """The facts of a training graph: names of its values, and its numbers."""

    loss: str | None = _fact(None)
    gradients: Names = _fact(_names, ABSENT)
    state: Names = _fact(_names, ABSENT)
    optimizer: OptimizerInfo | None = _fact(_optimizer)
    buffers: Names = _fact(_names, ABSENT)
    defaults: Mapping[str, Any] = _fact(_numbers, ABSENT)
    draws: Names = _fact(_names, ABSENT)
    heads: tuple[str, ...] | None = _fact(_listed)
    lower: tuple[Lower, ...] = _fact(_lower, ())
    lora: tuple[Adapter, ...] = _fact(read_adapters, ())
    frozen: tuple[str, ...] = _fact(_listed, ())
    locations: Mapping[str, Location] = _fact(read_locations, ABSENT)
    averages: Names = _fact(_names, ABSENT)
    scale: str | None = _fact(None)
    rows: Names = _fact(_names, ABSENT)
    saved: tuple[str, ...] | None = _fact(_listed)
    whole: tuple[str, ...] = _fact(_listed, ())
    fixed: Mapping[str, Any] = _fact(_object, ABSENT, "set")
    plan: Mapping[str, Any] | None = _fact(_object)
    kernels: str | None = _fact(None, key="group")
    ort_options: Mapping[str, Any] = _fact(_object, ABSENT, "load")

    @classmethod
    def of(cls, model: ir.Model) -> TrainingInfo:
        """The facts of a model.

        Raises:
            ModelError: its metadata is damaged.
        """
        return cls.parse(model.metadata_props)

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> TrainingInfo:
        """The facts in entries of metadata; other entries are ignored."""
        return _parsed(tuple(map(props.get, FACTS)))

    def texts(self) -> dict[str, str]:
        """Entries of metadata, by key."""
        held = {key: getattr(self, fact.name) for key, fact in FACTS.items()}
        return {k: _text(v) for k, v in held.items() if v is not FACTS[k].metadata["absent"]}

    def write(self, model: ir.Model) -> None:
        """Write these facts to the metadata of a model, in place; other entries stay."""
        before = TrainingInfo.of(model)
        for key, fact in FACTS.items():
            old, new = getattr(before, fact.name), getattr(self, fact.name)
            absent = fact.metadata["absent"]
            if new is absent:
                model.metadata_props.pop(key, None)
            elif new != old or old is absent:
                model.metadata_props[key] = _text(new)

    def require(self, graph: ir.Graph) -> None:
        """Check these facts against a graph that was read: the loss alone must be there.

        Raises:
            ModelError: it does not return its loss.
        """
        if self.loss is not None and all(v.name != self.loss for v in graph.outputs):
            raise ModelError(_damaged("gradtool.loss", f"names no output, but {self.loss:.40}"))

    @property
    def is_training_graph(self) -> bool:
        """Whether the model declares gradients, be it that there are none."""
        return self.gradients is not ABSENT

    @property
    def changing(self) -> frozenset[str]:
        """The values that may change between steps: parameters, state, rows of sums.

        Frozen parameters of one element, which are no constants, are among them.
        """
        return frozenset((*self.gradients, *self.state, *self.rows.values(), *self.frozen))

    @property
    def of_next(self) -> dict[str, str]:
        """By next value, its parameter or state."""
        return {after: name for name, after in self.state.items()}


FACTS: Mapping[str, Field[Any]] = {
    PREFIX + (fact.metadata["key"] or fact.name): fact for fact in fields(TrainingInfo)
}


def record(model: ir.Model, **facts: Any) -> None:
    """Write some facts into the metadata of a model, in place; the others stay."""
    replace(TrainingInfo.of(model), **facts).write(model)


def add_defaults(model: ir.Model, defaults: Mapping[str, Any]) -> None:
    """Note the defaults of further inputs."""
    record(model, defaults={**TrainingInfo.of(model).defaults, **defaults})


def add_location(model: ir.Model, name: str, node: ir.Node, **place: Any) -> None:
    """Note the place of a tensor at a node."""
    written = next((v.name for v in node.outputs if v.name), "")
    found = {**TrainingInfo.of(model).locations, name: Location(written, **place)}
    record(model, locations=found)


@lru_cache(maxsize=32)  # passes ask for facts unchanged by those before
def _parsed(texts: tuple[str | None, ...]) -> TrainingInfo:
    known: dict[str, Any] = {}
    for (key, fact), text in zip(FACTS.items(), texts, strict=True):
        if text is None:
            continue
        read = fact.metadata["read"]
        try:
            known[fact.name] = text if read is None else read(json.loads(text))
        except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
            why = f" ({error})" if isinstance(error, ValueError) else ""
            raise ModelError(_damaged(key, f"is not what gradtool writes there{why}")) from error
    return TrainingInfo(**known)


def _damaged(key: str, why: str) -> str:
    return f"its metadata {key!r} {why}: write the graph anew, or take that entry out"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=_plain)


def _plain(value: Any) -> dict[str, Any]:
    if isinstance(value, OptimizerInfo):
        return value.document()
    return dict(value) if isinstance(value, Mapping) else vars(value)
