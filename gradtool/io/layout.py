"""Layout of a model's data file: the tensors in it, and their offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph import walk
from gradtool.graph.tensors import is_external, nbytes
from gradtool.io.data_file import DataFile, Placed, is_data_of
from gradtool.io.external import of_program
from gradtool.io.file_tensors import FileTensor
from gradtool.io.zeros import Zeros

Where = Literal["auto", "always", "never"]

# Bytes. A protobuf ends at 2 GiB; the rest is for the graph itself.
LARGEST_INLINE = 1_932_735_283
# Runtimes want the values of small tensors at hand to infer shapes.
SMALLEST_EXTERNAL = 1024
_PAGE, _LINE = 4096, 64


def arrange(
    slots: Sequence[Slot], target: Path, where: Where, *, smallest: int = SMALLEST_EXTERNAL
) -> DataFile:
    """Give every tensor its place: inline, kept, or in a data file if it has more than `smallest`.

    Raises:
        UsageError: all must be inline and they are too many bytes for that.
    """
    movable = [slot for slot in slots if not _absent(slot.tensor)]
    kept = [slot for slot in movable if where != "never" and _stays(slot.tensor, target.parent)]
    moved = _unkept(movable, kept)
    beside = where == "auto" and _has_data_file(slots) and any(map(_is_large_zeros, moved))
    external = _is_external(moved, where)
    if (external or beside) and any(_is_replaced(slot.tensor, target) for slot in kept):
        external = True
        kept = [slot for slot in kept if not _is_replaced(slot.tensor, target)]
        moved = _unkept(movable, kept)
    large = [slot for slot in moved if slot.size > smallest]
    outside = [slot for slot in large if external or (beside and _is_large_zeros(slot))]
    inline = _unkept(moved, outside)
    total = sum(slot.size for slot in inline)
    if total > LARGEST_INLINE:
        raise UsageError(
            f"{target}: {total} bytes of tensors are too many for one protobuf; "
            "write them beside it with --external-data auto"
        )
    for slot in inline:
        if is_external(slot.tensor):
            slot.put(_inline(slot.tensor))
    places = list(_places(outside))
    data = DataFile.of(target, [Placed(slot.tensor, offset) for slot, offset in places])
    for slot, offset in places:
        slot.put(_external(slot, data.path.name, offset))
    return data


def inline(slots: Iterable[Slot]) -> None:
    """Take every tensor whose data is present into the model itself."""
    for slot in slots:
        if is_external(slot.tensor) and not _absent(slot.tensor):
            slot.put(_inline(slot.tensor))


@dataclass(frozen=True, eq=False)
class Slot:
    """A place of a tensor in a model, and the setter of another one there."""

    tensor: ir.TensorProtocol
    name: str
    put: Callable[[ir.TensorProtocol], object]

    @cached_property
    def size(self) -> int:
        """Bytes."""
        return nbytes(self.tensor)


def slots_of(model: ir.Model) -> list[Slot]:
    """All initializers of a model, and its attributes in a file beside it."""
    found = [
        Slot(value.const_value, name, partial(setattr, value, "const_value"))
        for graph in walk.graphs(model.graph)
        for name, value in graph.initializers.items()
        if value.const_value is not None
    ]
    bodies: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for body in bodies:
        for node in walk.nodes(body):
            for name, attribute in node.attributes.data.items():
                if is_external(attribute.value):
                    found.append(Slot(attribute.value, name, partial(_put, node, name)))
    return found


def _put(node: ir.Node, name: str, tensor: ir.TensorProtocol) -> None:
    node.attributes[name] = ir.AttrTensor(name, tensor)


def _unkept(slots: list[Slot], kept: list[Slot]) -> list[Slot]:
    marked = set(kept)
    return [slot for slot in slots if slot not in marked]


def _absent(tensor: ir.TensorProtocol) -> bool:
    return isinstance(tensor, FileTensor) and tensor.absent


def _is_replaced(tensor: ir.TensorProtocol, target: Path) -> bool:
    """Whether a tensor lies in the data file of the model to be overwritten."""
    file = tensor.file if isinstance(tensor, FileTensor) else None
    return file is not None and is_data_of(file.path, target)


def _stays(tensor: ir.TensorProtocol, folder: Path) -> bool:
    """Whether a model in `folder` reaches the tensor's bytes by the reference it has."""
    file = tensor.file if isinstance(tensor, FileTensor) else None
    if file is None or not isinstance(tensor, FileTensor) or not file.unchanged():
        return False
    reached = (folder / os.fspath(tensor.location)).resolve()
    return reached == file.path and reached.is_relative_to(folder.resolve())


def _is_external(slots: list[Slot], where: Where) -> bool:
    if where != "auto":
        return where == "always"
    return _has_data_file(slots) or sum(slot.size for slot in slots) > LARGEST_INLINE


def _is_large_zeros(slot: Slot) -> bool:
    return isinstance(slot.tensor, Zeros) and slot.size > SMALLEST_EXTERNAL


def _has_data_file(slots: Sequence[Slot]) -> bool:
    return any(is_external(slot.tensor) for slot in slots)


def _places(slots: list[Slot]) -> Iterator[tuple[Slot, int]]:
    """The offsets of the slots' tensors, one after the other, large ones at the start of a page.

    Zeros come last, all in one place.
    """
    end = 0
    zeros: int | None = None
    for slot in sorted(slots, key=_is_large_zeros):
        shared = _is_large_zeros(slot)
        align = _PAGE if shared or slot.size >= _PAGE else _LINE
        offset = -(-end // align) * align if zeros is None else zeros
        zeros = offset if shared else None
        end = max(end, offset + slot.size)
        yield slot, offset


def _external(slot: Slot, location: str, offset: int) -> ir.ExternalTensor:
    tensor = slot.tensor
    return ir.ExternalTensor(
        location,
        offset,
        tensor.nbytes,
        tensor.dtype,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name or slot.name,
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
    )


def _inline(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    import onnx

    proto = onnx.TensorProto(
        name=tensor.name,
        data_type=tensor.dtype.value,
        dims=tensor.shape.numpy(),
        raw_data=of_program(tensor).tobytes(),
        doc_string=tensor.doc_string or "",
    )
    return ir.serde.deserialize_tensor(proto)
