"""Conversion of arrays of data to the form and type of a model's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.io.stored import Stored
from gradtool.training.adapting import (
    Adaptation,
    adaptation,
    classes_of,
    from_one,
    is_one_based,
    scaled,
)
from gradtool.training.checks import converted
from gradtool.training.decoding import Array
from gradtool.training.images import Scale
from gradtool.training.input_spec import InputSpec
from gradtool.training.sampler import Indices
from gradtool.training.sources import Examined

MOST_READ = 1 << 30  # bytes of labels that are read to learn where they begin
Arrays = dict[str, Array]


class Converter:
    """Turns batches of a source, arrays by input, to what inputs take.

    `names` are those of the source by input, `said` lines for people, `one_based` the inputs whose
    labels begin at 1.  A `scale` is that of bytes of images.
    """

    def __init__(
        self,
        source: str,
        takes: InputSpec,
        names: Mapping[str, str],
        scale: Scale | None,
        said: list[str],
    ) -> None:
        self.source, self.takes, self.names = source, takes, names
        self.said, self._scale = said, scale
        self.one_based: set[str] = set()
        self._adapted: dict[str, list[Adaptation]] = {}

    def bind(self, name: str, array: Examined, like: Converter | None = None) -> None:
        """Learn how an array becomes an input: of labels, where they begin.

        Labels that begin at 1 in the data that these are `like` do so here.

        Raises:
            UsageError: it could become several things.
        """
        self.bind_shape(name, array.shape, array.dtype)
        if name in like.one_based if like is not None else self._begins_at_one(name, array):
            self.one_based.add(name)
            self._add(name, from_one(self.takes.inputs[name]))

    def bind_shape(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Learn how an array of a shape and a type becomes an input.

        Raises:
            UsageError: it could become several things.
        """
        self._adapted[name] = []
        for each in self._of_shape(name, shape, dtype):
            self._add(name, each)

    def _add(self, name: str, each: Adaptation) -> None:
        self._adapted[name].append(each)
        self._tell(f"{self.source}: {self.names[name]!r} is {each.said}")

    def say_type(self, name: str, array: Array) -> None:
        """Tell people of an array, in the form of its input, that is converted."""
        dtype = self.dtype(name)
        if dtype is not None and array.dtype != dtype and np.can_cast(
            array.dtype, dtype, "same_kind"
        ):  # fmt: skip
            how = "" if np.can_cast(array.dtype, dtype, "safe") else ", rounded"
            if array.dtype == np.uint8 and array.ndim == 4 and dtype.kind == "f":
                how = " from 0 to 255; --image-mean 0 takes it from 0 to 1"
            self._tell(
                f"{self.source}: {self.names[name]!r} is {array.dtype}, taken as {dtype}{how}"
            )

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """The type of an input."""
        dtype = self.takes.inputs[name].dtype
        return None if dtype is None else np.dtype(dtype.numpy())

    def convert(self, arrays: Arrays, indices: Indices | None = None) -> Arrays:
        """Arrays in the types of the inputs, where no other kind of number is meant."""
        made: Arrays = {}
        for name, array in self.adapt(arrays, indices).items():
            dtype = self.dtype(name)
            if dtype is None or array.dtype == dtype:
                made[name] = array
            elif np.can_cast(array.dtype, dtype, "same_kind"):
                what = f"{self.source}: {self.names[name]!r}"
                made[name] = converted(array, dtype, what, indices)
            else:
                try:
                    made[name] = feeds.in_type_of(self.takes.inputs[name], array, "")
                except UsageError:
                    raise UsageError(
                        f"{self.source}: {self.names[name]!r} is {array.dtype}, the model "
                        f"takes {dtype}"
                    ) from None
        return made

    def adapt(self, arrays: Arrays, indices: Indices | None) -> Arrays:
        """Arrays in the form of the inputs."""
        made = dict(arrays)
        for name in arrays:
            for each in self._adapted.get(name, ()):
                places = np.arange(len(made[name])) if indices is None else indices
                try:
                    made[name] = each.apply(made[name], places)
                except UsageError as error:
                    raise UsageError(f"{self.source}: {error}") from error
        return made

    def _of_shape(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> list[Adaptation]:
        """How an array of a shape and a type becomes what an input takes."""
        value, of = self.takes.inputs[name], self.names[name]
        if self.takes.axes[name] != 0:
            return []
        try:
            found = [adaptation(value, shape, dtype)]
        except ValueError as error:
            raise UsageError(
                f"{self.source}: {of!r} has shape {list(shape)}, the model takes "
                f"{value.shape}: that may be {error}: lay it out so"
            ) from error
        if self._scale is not None:
            found.append(scaled(value, dtype, self._scale))
        return [each for each in found if each is not None]

    def _begins_at_one(self, name: str, array: Examined) -> bool:
        is_label = self.takes.axes[name] == 0 and classes_of(self.takes.inputs[name]) is not None
        if not is_label or not isinstance(array, np.ndarray | Stored) or array.nbytes > MOST_READ:
            return False
        taken = self.adapt({name: np.asarray(array)}, np.arange(array.shape[0]))[name]
        return is_one_based(self.takes.inputs[name], taken)

    def _tell(self, line: str) -> None:
        if line not in self.said:
            self.said.append(line)
