"""The model as it was before anything was done to it, with other numbers in its tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from gradtool.errors import UsageError
from gradtool.graph.lora import Adapter, merge
from gradtool.graph.metadata import SOURCE
from gradtool.graph.predicates import HALVES
from gradtool.graph.tensors import array, holds
from gradtool.graph.training_info import Location
from gradtool.io import atomic, external, file_tensors, layout, lift_constants, literals, read, walk
from gradtool.io.functions import inline_functions
from gradtool.io.read import Held, Source
from gradtool.io.save import STDOUT, appear, require_stdout, to_file, to_stdout
from gradtool.text.words import some

PATH = "gradtool.path"
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16,
          onnx.TensorProto.DOUBLE)  # fmt: skip
BESIDE = "write them apart, by --lora-adapter of gradtool kit merge, or save_adapter of a session"

Arrays = Mapping[str, np.ndarray[Any, Any]]
Kind = tuple[np.dtype[Any], tuple[int, ...]]  # type and shape


def source_of(meta: Mapping[str, Any]) -> Source:
    """The source of a loaded model.

    Raises:
        UsageError: from standard input, or nobody knows.
    """
    found: Source | None = meta.get(SOURCE) or meta.get(PATH)
    if found is None:
        raise UsageError(
            "nothing tells which model this was made from: load it from a file, or by gradtool.load"
        )
    return found


def kind_of(value: ir.Value) -> Kind:
    """The type and shape of an initializer."""
    assert value.dtype is not None and value.shape is not None  # noqa: PT018, S101 - it has both
    return np.dtype(value.dtype.numpy()), tuple(value.shape.numpy())


class Original:
    """The message of a model, for other numbers in the places of its tensors.

    They go by the names that they have once the model is loaded (see `gradtool.io.lift_constants`).
    """

    def __init__(self, source: Source) -> None:
        """Read a model. Raises ModelError if the file is gone, or damaged."""
        beside = source.path if isinstance(source, Held) else None
        self._path = source if isinstance(source, Path) else beside
        self._folder = external.Folder(self._path)
        self._proto = read.message(source)
        self._stored = lift_constants.stored_tensors(self._proto)
        self._outside = [t for t, _ in walk.tensors(self._proto) if _is_outside(t)]

    def put(self, arrays: Arrays, adapters: tuple[Adapter, ...] = ()) -> list[str]:
        """Put arrays into the tensors of their names; returns the names missing in the model.

        Arrays of `adapters` go into their weights, and masters of float32 into the tensors of 16
        bits that they stand for.

        Raises:
            UsageError: a tensor has another type or shape than its array, or a type that does not
                hold its numbers; or an adapter is of a weight of few bits.
        """
        coded = self.coded(adapters)
        if coded:
            raise UsageError(
                f"{some(coded, 3)}: an adapter cannot be merged into few bits, which would round "
                f"it away: {BESIDE}"
            )
        lacking = []
        for name, new in merge(adapters, arrays, self._weight):
            if name not in self._stored:
                lacking.append(name)
                continue
            dtype = self._tensor(name).dtype
            held = narrowed(name, new, dtype)
            if not self._has(name, held):
                self._stored[name].put(ir.serde.serialize_tensor(ir.Tensor(held, dtype=dtype)))
        return lacking

    def coded(self, adapters: tuple[Adapter, ...]) -> list[str]:
        """Weights of few bits among those adapted: their adapters stay beside them."""
        held = [each.weight for each in adapters if each.weight in self._stored]
        return [n for n in held if self._stored[n].tensor().data_type not in FLOATS]

    def put_at(self, arrays: Arrays, places: Mapping[str, Location]) -> list[str]:
        """Put arrays of no tensor's name into their places; returns those without a place.

        A statistic that the exporter took for another tensor becomes an initializer.
        """
        return [
            name for name, new in arrays.items()
            if name not in places or not put(self._proto, name, places[name], new)
        ]  # fmt: skip

    def note(self, metadata: Mapping[str, str]) -> None:
        """Put entries into the metadata of the model, in place of those of the same keys."""
        kept = [each for each in self._proto.metadata_props if each.key not in metadata]
        onnx.helper.set_model_props(
            self._proto, {**{each.key: each.value for each in kept}, **metadata}
        )

    def require(
        self,
        tensors: Mapping[str, Kind],
        adapters: tuple[Adapter, ...] = (),
        places: Mapping[str, Location] = MappingProxyType({}),
    ) -> None:
        """Refuse a model without a tensor to be put into it, by name, type and shape.

        Raises:
            UsageError: naming it.
        """
        beside = {name for adapter in adapters for name in adapter.names}
        needed = {name: kind for name, kind in tensors.items() if name not in beside}
        located = {name for name, p in places.items() if node_of(self._proto, p)}
        weights = [adapter.weight for adapter in adapters]
        lacking = [n for n in needed if n not in self._stored and n not in located]
        lacking += [name for name in weights if name not in self._stored]
        if lacking:
            raise UsageError(
                f"the model has no tensor {some(lacking)} that trained numbers could be written "
                "into: choose others by --wrt or --no-grad"
            )
        for name, kind in needed.items():
            if name in self._stored:
                self._require_kind(name, *kind)

    @property
    def size(self) -> int:
        """Bytes of the file and of the tensors beside it."""
        inside: int = self._proto.ByteSize()
        return inside + sum(self._opened(t).nbytes for t in self._outside)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        external_data: layout.Where = "auto",
    ) -> tuple[Path, int]:
        """Write the message; path and bytes, those of its data file included.

        By default tensors lie inside or beside as they do in the source.  It is not checked: it
        passes every check that the source passes, and the source was trained.

        Raises:
            UsageError: the output exists and `force` is not given, or it cannot be written.
        """
        slots = self._slots(every=external_data != "auto")
        if os.fspath(path) == STDOUT:
            require_stdout(external_data)
            layout.inline(slots)
            return Path(path), to_stdout([self._bytes()]).size
        target = atomic.target(path, force=force)
        if external_data == "auto":
            data = layout.arrange(slots, target, "always", smallest=0)
        else:
            data = layout.arrange(slots, target, external_data)
        written = to_file([self._bytes()], data, path, target)
        appear([written])
        return written.path, written.size

    def model(self, weights: Sequence[str]) -> ir.Model:
        """The model, with certain weights as initializers of the main graph.

        Where they are not, all are made so, and functions replaced by their bodies.
        """
        main = {tensor.name for tensor in self._proto.graph.initializer}
        named = {name for name, home in self._stored.items() if home.local == name}
        plain = main.issuperset(weights) and named.issuperset(weights)
        if not plain or any(True for _ in walk.sparse_constants(self._proto)):
            lift_constants.lift(self._proto, lambda _domain, _name: False)
        model = ir.serde.deserialize_model(self._proto)
        if not plain:
            inline_functions(model, lambda _domain, _name: False)
        file_tensors.attach(model, self._folder.find)
        model.meta[PATH] = self._path
        return model

    def has_data_file(self) -> bool:
        """Whether the model keeps tensors beside it."""
        return bool(self._outside)

    def _weight(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._stored:
            raise UsageError(f"the original model has no tensor called {name}, which is adapted")
        return array(self._tensor(name))

    def _tensor(self, name: str) -> ir.TensorProtocol:
        return self._opened(self._stored[name].tensor())

    def _opened(self, tensor: onnx.TensorProto) -> ir.TensorProtocol:
        found = ir.serde.deserialize_tensor(tensor)
        if not isinstance(found, ir.ExternalTensor):
            return found
        where = f"tensor {tensor.name!r}"
        return file_tensors.FileTensor(found, self._folder.find(os.fspath(found.location), where))

    def _require_kind(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        old = self._tensor(name)
        is_master = old.dtype in HALVES and dtype == np.float32
        if tuple(old.shape) != shape or not (is_master or np.dtype(old.dtype.numpy()) == dtype):
            raise UsageError(
                f"{name!r} is {dtype}{list(shape)} here and {old.dtype.numpy()}{list(old.shape)} "
                "in the original model: that has changed"
            )

    def _has(self, name: str, new: np.ndarray[Any, Any]) -> bool:
        """Whether a tensor has the numbers of an array already.

        Raises:
            UsageError: it has another type or shape.
        """
        self._require_kind(name, new.dtype, new.shape)
        old = self._tensor(name)
        absent = isinstance(old, file_tensors.FileTensor) and old.absent
        return not absent and holds(old, new)

    def _slots(self, *, every: bool) -> list[layout.Slot]:
        """The places of tensors in files beside the model, or of `every` initializer too."""
        tensors = self._outside
        if every:
            tensors = [t for graph in walk.all_graphs(self._proto) for t in graph.initializer]
            tensors += [t for t in self._outside if t.name not in {t.name for t in tensors}]
        return [layout.Slot(self._opened(_copy(t)), t.name, partial(_put, t)) for t in tensors]

    def _bytes(self) -> bytes:
        try:
            content: bytes = self._proto.SerializeToString(deterministic=True)
        except ValueError as error:
            raise UsageError(
                f"the model is too large for one protobuf ({error}); use --external-data auto"
            ) from error
        return content


def narrowed(name: str, new: np.ndarray[Any, Any], dtype: ir.DataType) -> np.ndarray[Any, Any]:
    """A master of float32, rounded to its former type of 16 bits; others as they are.

    Raises:
        UsageError: a number is more than the type holds.
    """
    if dtype not in HALVES or new.dtype != np.float32:
        return new
    with np.errstate(over="ignore"):
        found: np.ndarray[Any, Any] = new.astype(dtype.numpy())
    lost = np.isfinite(new) & ~np.isfinite(found.astype(np.float32))
    if lost.any():
        raise UsageError(
            f"{name!r} has {new[lost].flat[0]:g}, which is more than {dtype.name.lower()} holds"
        )
    return found


def _is_outside(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _copy(tensor: onnx.TensorProto) -> onnx.TensorProto:
    found = onnx.TensorProto()
    found.CopyFrom(tensor)
    return found


def _put(held: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
    literals.fill(held, ir.serde.serialize_tensor(tensor))


def node_of(model: onnx.ModelProto, location: Location) -> onnx.NodeProto | None:
    """The node of a tensor; None if there is none such, or no telling which."""
    nodes = [n for n in walk.nodes(model.graph.node) if location.node in n.output and location.node]
    if len(nodes) != 1:
        return None
    node = nodes[0]
    named = {attribute.name for attribute in node.attribute}
    fits = location.attribute in named if location.attribute else location.slot < len(node.input)
    return node if fits else None


def put(model: onnx.ModelProto, name: str, location: Location, array: np.ndarray[Any, Any]) -> bool:
    """Put an array into its place; whether there is such a place."""
    node = node_of(model, location)
    if node is None:
        return False
    if location.attribute:
        return _into_attribute(node, location, array)
    graph = model.graph
    copies = [n for n in graph.node if n.op_type == "Identity" and list(n.output) == [name]]
    for copy in copies:
        graph.node.remove(copy)
    made = graph.initializer.add()
    made.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    node.input[location.slot] = name
    return True


def _into_attribute(node: onnx.NodeProto, location: Location, array: np.ndarray[Any, Any]) -> bool:
    attribute = next(each for each in node.attribute if each.name == location.attribute)
    flat = array.T.ravel()
    numbers = np.concatenate([-flat, flat]) if location.mirrored else flat
    if len(attribute.floats) != len(numbers):
        return False
    attribute.floats[:] = numbers.tolist()
    return True
