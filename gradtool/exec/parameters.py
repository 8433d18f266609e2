"""The data of a model's initializers, as it is loaded into an arena or read in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import MissingData
from gradtool.exec.mapped_files import Files, InPlace, MappedFile
from gradtool.io.file_tensors import FileTensor
from gradtool.program import Program

Parameters = Callable[[str], np.ndarray[Any, Any]]


class Initializers:
    """The initializers of a model, by name."""

    def __init__(self, model: ir.Model, files: Files | None = None) -> None:
        self._model = model
        self._files = Files() if files is None else files

    def __call__(self, name: str) -> np.ndarray[Any, Any]:
        """The array of an initializer; it is not kept.

        Raises:
            MissingData: it has no data.
        """
        tensor = self._tensor(name)
        return tensor.read() if isinstance(tensor, FileTensor) else io.array(tensor)

    def in_place(self, name: str) -> InPlace:
        """The bytes of an initializer where they lie in a file.

        Raises:
            MissingData: it has no data, or the file has changed.
        """
        tensor = self._tensor(name)
        if isinstance(tensor, FileTensor) and tensor.is_mappable:
            return self._files.find(tensor)
        return InPlace.own(self(name))

    def _tensor(self, name: str) -> ir.TensorProtocol:
        tensor = self._model.graph.initializers[name].const_value
        if tensor is None:
            raise MissingData(f"initializer {name!r} has no data; run needs the weights")
        return tensor


def parameters_of(model: ir.Model, files: Files | None = None) -> Initializers:
    """The arrays of a model's initializers, by name, with what is mapped of `files`."""
    return Initializers(model, files)


def in_place(parameters: Parameters, name: str) -> InPlace:
    """The bytes of a parameter where they lie; of other parameters than a model's, a copy."""
    found = getattr(parameters, "in_place", None)
    return InPlace.own(parameters(name)) if found is None else found(name)


@dataclass(frozen=True)
class Mapped:
    """The bytes of the values that a program reads in place, by number, and their files."""

    data: Mapping[int, np.ndarray[Any, Any]]
    files: Sequence[MappedFile]

    @classmethod
    def of(cls, program: Program, parameters: Parameters) -> Mapped:
        """What is mapped of a program.

        Raises:
            MissingData: a file is absent or has changed, or a value is not as it was planned.
        """
        found: dict[int, InPlace] = {}
        for index, datum in enumerate(program.values):
            if datum.mapped and datum.spec is not None:
                found[index] = held = in_place(parameters, datum.name)
                if held.data.size != datum.spec.bytes:
                    raise MissingData(
                        f"parameter {datum.name!r} has {held.data.size} bytes, planned are "
                        f"{datum.spec.bytes}"
                    )
        files = (held.file for held in found.values() if held.file is not None)
        return cls({i: held.data for i, held in found.items()}, list(dict.fromkeys(files)))

    def require_same(self) -> None:
        """Refuse what was read of files that somebody has changed meanwhile.

        Raises:
            MissingData: naming the file.
        """
        for file in self.files:
            file.require_same()
