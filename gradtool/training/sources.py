"""Where data come from: files of arrays that hold all examples, or a function that yields batches.

Nothing is unpickled.  Folders and safetensors files stay on the disk: what a batch needs is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError, UsageError
from gradtool.exec import inputs
from gradtool.exec.array_interop import array_of, as_numpy
from gradtool.io import npy, safetensors
from gradtool.io.stored import Stored
from gradtool.plugins import function_at, parameters_of

Array = np.ndarray[Any, Any]
Batch = Mapping[str, Any]
TABLES = (".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class Watched:
    """A file that is read from, as it was when it was opened."""

    path: Path
    bytes: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> Watched:
        """A file as it is now."""
        found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def require_same(self) -> None:
        """Raise UsageError if the file is another one now."""
        try:
            now = Watched.of(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: is gone: {error.strerror}") from error
        if now != self:
            what = f"{self.bytes} bytes before, {now.bytes} now" if now.bytes != self.bytes else ""
            raise UsageError(
                f"{self.path}: has changed since training began{': ' if what else ''}{what}"
            )


@dataclass(frozen=True)
class Examples:
    """Arrays by name that hold all examples, one after the other along an axis."""

    source: str
    arrays: Mapping[str, Array | Stored]
    files: tuple[Watched, ...] = ()

    def require_same(self) -> None:
        """Raise UsageError if a file has changed."""
        for file in self.files:
            file.require_same()


@dataclass(frozen=True)
class Stream:
    """A function that makes the batches of an epoch: `make(epoch)`."""

    source: str
    make: Callable[[int], Iterable[Batch]]


Source = Examples | Stream
Given = str | os.PathLike[str] | Mapping[str, Any] | Callable[..., Any]


def opened(given: Given, seed: int = 0) -> Source:
    """The data that a path, `module:function`, arrays by name or a function mean.

    A function is called with those of `epoch` and `seed` that it takes.

    Raises:
        UsageError: there is no such thing, or it cannot be read as data.
    """
    if isinstance(given, Mapping):
        return Examples("data", {name: _array(name, each) for name, each in given.items()})
    if callable(given):
        return _of_function(given, getattr(given, "__name__", "data"), seed)
    text = os.fspath(given)
    path = Path(text)
    if not path.exists() and ":" in text:
        return _of_function(imported(text), text, seed)
    if path.is_dir():
        return _folder(path)
    if path.suffix == safetensors.SUFFIX:
        return Examples(text, safetensors.load(path).stored, (Watched.of(path),))
    if path.suffix in TABLES:
        from gradtool.training.tables import columns

        return Examples(text, columns(path))
    return Examples(text, inputs.read(text))


def _folder(folder: Path) -> Examples:
    """A folder of `.npy` files, which stay there."""
    files = sorted(folder.glob("*.npy"))
    if not files:
        raise UsageError(f"{folder}: the folder holds no .npy file")
    arrays = {f.stem: npy.stored(f) for f in files}
    return Examples(str(folder), arrays, tuple(map(Watched.of, files)))


def _array(name: str, given: Any) -> Array:
    try:
        return as_numpy(array_of(given))
    except ValueError as error:
        raise UsageError(f"data: {name!r} is no array ({error})") from error


def imported(text: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        UsageError: there is no such module or function.
    """
    function = function_at(text)
    if function is None:
        raise UsageError(f"{text}: no such file, and no module {text.partition(':')[0]!r}")
    return function


@contextmanager
def theirs(source: str) -> Iterator[None]:
    """Run what somebody else wrote: what it raises is no failure of ours.

    Raises:
        UsageError: in place of what was raised, with its kind.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, GradtoolError):
            raise
        said = " ".join(str(error).split())
        kind = type(error).__name__
        raise UsageError(f"{source}: raised {kind}{': ' if said else ''}{said}") from error


def _of_function(function: Callable[..., Any], source: str, seed: int) -> Source:
    """What a function returns: arrays by name, which are all examples, or batches."""
    first = [_called(function, source, 0, seed)]
    if isinstance(first[0], Mapping):
        return Examples(source, {name: _array(name, each) for name, each in first[0].items()})

    def make(epoch: int) -> Iterable[Batch]:
        """The batches of an epoch, those of the user's function."""
        batches = first.pop() if first and not epoch else _called(function, source, epoch, seed)
        with theirs(source):
            left = iter(batches)
        for number in count():
            with theirs(f"{source}: batch {number}"):
                batch = next(left, None)
            if batch is None:
                return
            if not isinstance(batch, Mapping):
                kind = type(batch).__name__
                raise UsageError(f"{source}: batch {number} is no arrays by name, but {kind}")
            yield batch

    return Stream(source, make)


def _called(function: Callable[..., Any], source: str, epoch: int, seed: int) -> Any:
    known = {"epoch": epoch, "seed": seed}
    takes = parameters_of(function)
    with theirs(source):
        made = function(**{name: value for name, value in known.items() if name in takes})
    if not isinstance(made, Iterable):
        raise UsageError(f"{source}: yields no batches, but returns {type(made).__name__}")
    return made


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """`image=x` as `{"image": "x"}`: by input, the name in the data.

    Raises:
        UsageError: it has another form, or an input has two names.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, of = text.partition("=")
        if not name or not of or found.setdefault(name, of) != of:
            raise UsageError(f"--map {text}: write INPUT=NAME, once per input")
    return found
