"""`manifest.json` of a kit: the names, types and roles of inputs and outputs, and its files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict, cast

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.lora import Adapter, read_adapters
from gradtool.graph.training_info import Location, TrainingInfo, read_locations
from gradtool.io import contained, safetensors
from gradtool.io.documents import is_text, is_whole, read_document
from gradtool.kit import state
from gradtool.kit.parts import Parts, Role
from gradtool.text.json_schema import Count, Keywords
from gradtool.workloads.records import PlannedFor

SCHEMA_VERSION = 1
FILE = "manifest.json"
STEP, EVALUATION, ORIGINAL = "step.onnx", "eval.onnx", "original.onnx"


class ModelRecord(TypedDict):
    """The source model of a kit."""

    file: Annotated[str, "The model that the kit was made of, from the folder of the kit."]
    sha256: Annotated[str, Keywords(pattern="^[0-9a-f]{64}$")]


class OptimizerRecord(TypedDict):
    """The optimizer of the step; its other numbers are fixed in the step."""

    name: str
    learning_rate: Annotated[str, "The input of the step that is the learning rate."]
    inputs: Annotated[
        dict[str, str],
        "By number of the optimizer (lr, beta1, weight_decay, clip_norm, ...) the input of the "
        "step that it is.",
    ]
    rows: NotRequired[
        Annotated[list[str], "The tables of which only the rows that a step reads are updated."]
    ]


class PlanRecord(TypedDict):
    """A memory plan."""

    name: str
    peak_bytes: Count
    keep_bytes: Count
    extra_flops: int | None
    dims: dict[str, int]
    kernels: NotRequired[PlannedFor]


class ValueRecord(TypedDict):
    """An input or an output."""

    name: str
    type: Annotated[str | None, "The element type, as NumPy and ml_dtypes call it."]
    shape: Annotated[
        list[Count | str | None] | None,
        "A size that is open is a text, one that nobody knows null.",
    ]


class InputRecord(ValueRecord):
    """An input."""

    default: NotRequired[Annotated[float, "The default value to feed."]]


class InterfaceRecord(TypedDict):
    """A pure function."""

    file: str
    inputs: Annotated[list[InputRecord], "The inputs besides the state."]
    state: Annotated[list[str], "The tensors of the state that it takes, by name."]
    outputs: list[ValueRecord]


class TensorRecord(TypedDict):
    """A tensor of the state."""

    name: Annotated[str, "Its name as an input, and in the safetensors file."]
    next: Annotated[str, "The output of the step that is fed as `name` to the next one."]
    role: Annotated[Role, "The state of an optimizer is of no use but to train on."]
    type: Annotated[str, Keywords(enum=[*safetensors.TYPES])]
    shape: list[Count]
    file: Annotated[str, "Its bytes in C order, little-endian, and nothing else."]


class StateRecord(TypedDict):
    """The state to begin with."""

    safetensors: Annotated[str, "The state to begin with, in one file."]
    tensors: list[TensorRecord]


class KitDocument(TypedDict):
    """The parts of a kit: names, types and roles of inputs and outputs."""

    model: ModelRecord
    loss: Annotated[str | None, "The output of step and eval that holds the loss."]
    optimizer: Annotated[OptimizerRecord, Keywords(additionalProperties=True)]
    lora: Annotated[
        list[Adapter],
        "Adapters, of which merging makes weights: their tensors are part of the state.",
    ]
    locations: Annotated[
        dict[str, Location],
        "Where tensors of the state belong in the model that are none there by name.",
    ]
    plan: Annotated[
        PlanRecord | None, "The memory plan that the step follows; null where it keeps everything."
    ]
    onnxruntime: Annotated[
        dict[str, object],
        "Options of a session of stock onnxruntime that keep the plan, as its Python interface "
        "calls them.",
    ]
    step: Annotated[InterfaceRecord, "A whole training step: a pure function."]
    eval: Annotated[InterfaceRecord, "The forward model and its loss, in inference form."]
    state: StateRecord


@dataclass(frozen=True)
class Manifest:
    """The manifest as merging needs it: path and digest of the model, the state, adapters."""

    folder: Path
    model: str
    sha256: str
    entries: tuple[Mapping[str, Any], ...]
    adapters: tuple[Adapter, ...]
    locations: Mapping[str, Location]

    @property
    def original(self) -> Path:
        """The kit's source model, at its path then."""
        return self.folder / self.model


def document(parts: Parts, source: Path, folder: Path, options: Mapping[str, Any]) -> KitDocument:
    """The manifest of a kit in a folder, made of a model in a file.

    `options` are those of stock onnxruntime that keep the memory plan of the step.
    """
    info = TrainingInfo.of(parts.step)
    told = {} if info.optimizer is None else info.optimizer.document()
    optimizer = {"name": told.pop("name"), "learning_rate": told.pop("lr"), **told}
    names = [tensor.name for tensor in parts.state]
    return {
        "model": {
            "file": Path(os.path.relpath(source, folder)).as_posix(),
            "sha256": contained.digest(source),
        },
        "loss": info.loss,
        "optimizer": cast("OptimizerRecord", optimizer),
        "lora": list(info.lora),
        "locations": dict(info.locations),
        "plan": cast("PlanRecord | None", info.plan),
        "onnxruntime": dict(options),
        "step": _interface(STEP, parts.step, names),
        "eval": _interface(EVALUATION, parts.evaluation, names),
        "state": {
            "safetensors": state.FILE,
            "tensors": [
                {
                    "name": tensor.name,
                    "next": tensor.next,
                    "role": tensor.role,
                    "type": tensor.first.dtype.numpy().name,
                    "shape": list(tensor.first.shape.numpy()),
                    "file": f"{state.FOLDER}/{file}",
                }
                for tensor, file in zip(parts.state, state.file_names(names), strict=True)
            ],
        },
    }


def _interface(file: str, model: ir.Model, state_names: Sequence[str]) -> InterfaceRecord:
    """A model's inputs besides the state, its part of the state, and its outputs."""
    known = set(state_names)
    defaults = TrainingInfo.of(model).defaults
    given = [v for v in model.graph.inputs if v.name not in known and not v.is_initializer()]
    return {
        "file": file,
        "inputs": [_described(v, defaults) for v in given],
        "state": [v.name for v in model.graph.inputs if v.name in known],
        "outputs": [_described(v, {}) for v in model.graph.outputs],
    }


def _described(value: ir.Value, defaults: Mapping[str, Any]) -> InputRecord:
    """Name, type and shape, and the default value if there is one."""
    shape = None
    if value.shape is not None:
        shape = [d if isinstance(d, int) else d.value for d in value.shape]
    dtype = None if value.dtype is None else value.dtype.numpy().name
    name = value.name or ""
    found: InputRecord = {"name": name, "type": dtype, "shape": shape}
    if name in defaults:
        found["default"] = defaults[name]
    return found


def read(folder: Path) -> Manifest:
    """The manifest in a folder.

    Raises:
        UsageError: there is none, or it is not written by `gradtool kit`.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; gradtool kit MODEL -o {folder} makes one")
    path = folder / FILE
    found = read_document(path, SCHEMA_VERSION, own=True)
    model, kept = found.get("model"), found.get("state")
    entries = kept.get("tensors") if isinstance(kept, dict) else None
    if not isinstance(model, dict) or not all(is_text(model.get(k)) for k in ("file", "sha256")):
        raise UsageError(f"{path}: is no manifest of a kit: it names no model")
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise UsageError(f"{path}: is no manifest of a kit: it describes no state")
    adapters = _adapters(found.get("lora"), {entry["name"] for entry in entries})
    if adapters is None:
        raise UsageError(f"{path}: is no manifest of a kit: its adapters are none")
    places = _locations(found.get("locations", {}))
    if places is None:
        raise UsageError(f"{path}: is no manifest of a kit: it says of tensors where nothing is")
    return Manifest(folder, model["file"], model["sha256"], tuple(entries), adapters, places)


def _locations(found: object) -> dict[str, Location] | None:
    """The places of tensors that the model lacks as such, if a manifest has valid ones."""
    try:
        return read_locations(found)  # type: ignore[arg-type]
    except (TypeError, AttributeError):
        return None


def _adapters(found: object, names: AbstractSet[str]) -> tuple[Adapter, ...] | None:
    """The adapters described by a manifest, whose tensors are part of the state."""
    try:
        adapters = read_adapters(found)  # type: ignore[arg-type]
    except TypeError:
        return None
    return adapters if all(names >= {*each.names} for each in adapters) else None


def _is_entry(found: object) -> bool:
    if not isinstance(found, dict):
        return False
    texts = (found.get(key) for key in ("name", "next", "role", "type", "file"))
    shape = found.get("shape")
    return (
        all(map(is_text, texts))
        and isinstance(shape, list)
        and all(is_whole(size) and size >= 0 for size in shape)
        and found["type"] in safetensors.TYPES
    )
