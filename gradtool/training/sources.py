"""Sources of data: files that hold all examples, or what yields batches.

Nothing is unpickled.  Folders and safetensors files stay on the disk: what a batch needs is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gradtool.errors import UsageError, UserCodeError
from gradtool.exec import inputs
from gradtool.exec.array_interop import array_of, as_numpy
from gradtool.io import npy, safetensors
from gradtool.io.stored import Stored
from gradtool.plugins import function_at, parameters_of, place_of, user_code
from gradtool.text.words import some
from gradtool.training import audio, images, media, tables, text_tables
from gradtool.training.columns import Categories, Classes, Unread
from gradtool.training.data_options import DataOptions
from gradtool.training.decoding import Decoded
from gradtool.training.input_spec import InputSpec
from gradtool.training.iterables import Column, Indexed, Once, again
from gradtool.training.text import Text
from gradtool.training.text_files import TextFile
from gradtool.training.watched_files import Watched
from gradtool.workloads.options import options_of

Array = np.ndarray[Any, Any]
Examined = Array | Stored | Decoded | Column | Unread
_OF_IMAGES = ("image_size", "image_crop", "flip", "random_crop")
_OF_TEXT = ("tokenizer", "max_length", "too_long", "mask_prompt", "pack")
_SCALES = ("image_mean", "image_std")  # of arrays of bytes as well


@dataclass(frozen=True)
class Examples:
    """Arrays by name that hold all examples, one after the other along an axis.

    `names` has the array of an input where nobody else says, `classes` the names of classes by
    array, `kept` what a trained file keeps of how examples were made, `said` lines for people.
    Rows of tokens are of a `text`.
    """

    source: str
    arrays: Mapping[str, Examined]
    files: tuple[Watched, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    classes: Classes = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    text: Text | None = None

    def require_same(self) -> None:
        """Raise UsageError if a file has changed."""
        for file in self.files:
            file.require_same()


class Stream:
    """The batches of an epoch: `make(epoch)`; of an iterator it does so `once`.

    The first batch may be looked at before it is taken.  `code` is the user's object behind it.
    """

    def __init__(
        self, source: str, make: Callable[[int], Iterable[Any]], *, once: bool = False,
        code: Any = None,
    ) -> None:  # fmt: skip
        self.source, self.once, self._make, self._code = source, once, make, code
        self._begun: tuple[list[Any], Iterator[Any]] | None = None

    @property
    def place(self) -> str:
        """` (file:line)` of the user's code that makes the batches; empty where unknown."""
        return place_of(self._code)

    def first(self) -> list[Any]:
        """The first batch, which is still to come; none where there is none."""
        if self._begun is None:
            left = self._checked(0)
            self._begun = list(islice(left, 1)), left
        return self._begun[0]

    def epoch(self, number: int) -> Iterator[Any]:
        """The batches of an epoch."""
        if number or self._begun is None:
            return self._checked(number)
        (first, left), self._begun = self._begun, None
        return chain(first, left)

    def _checked(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch; what fails is told as the failure of who makes them."""
        with user_code(self.source, self._code):
            left = iter(self._make(epoch))
        for number in count():
            with user_code(f"{self.source}: batch {number}", self._code):
                batch = next(left, _END)
            if batch is _END:
                return
            yield batch


# Arrays, their names by input, what people should hear, and what a trained file keeps.
Bound = tuple[dict[str, Any], dict[str, str], list[str], dict[str, Any]]


class Unbound(Protocol):
    """Data whose arrays depend on what a model takes."""

    @property
    def source(self) -> str:
        """The name for people."""

    def arrays(self, takes: InputSpec, names: Mapping[str, str]) -> Bound:
        """Arrays as a model takes them."""

    def described(self) -> dict[str, Any]:
        """The fingerprint of the examples' numbers."""


@dataclass(frozen=True)
class Lazy:
    """Data that become examples once a model's inputs are known."""

    of: Unbound
    classes: Classes = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The name for people."""
        return self.of.source

    def bound(self, takes: InputSpec, names: Mapping[str, str]) -> Examples | Stream:
        """The data as a model takes them; `names` are what people call its inputs."""
        if isinstance(self.of, Indexed) and self.of.has_batches(takes):
            return Stream(self.source, self.of.batches)
        arrays, found, said, kept = self.of.arrays(takes, names)
        about = self.of.described()
        text = self.of if isinstance(self.of, Text) and self.of.tokens is not None else None
        return Examples(
            self.source, arrays, (), found, self.classes, kept, tuple(said), about, text
        )


@runtime_checkable
class Dataset(Protocol):
    """Examples that are asked for by their numbers, as a `torch.utils.data.Dataset` has them."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, number: int) -> Any:
        """One of them: arrays by name, or in the order of the model's inputs."""


Source = Examples | Lazy | Stream
Given = str | os.PathLike[str] | Mapping[str, Any] | Callable[..., Any] | Iterable[Any] | Dataset
_END = object()


def opened(
    given: Given,
    seed: int = 0,
    options: DataOptions | None = None,
    classes: Classes = MappingProxyType({}),
) -> Source:
    """The data that a path, `module:function`, arrays by name, a function or an iterable mean.

    A function is called with those of `epoch` and `seed` that it takes.  `classes` are those of
    the data that are trained on.

    Raises:
        UsageError: there is no such thing, it cannot be read as data, or has nothing that an
            option is for.
    """
    options = options or DataOptions()
    found = _opened(given, seed, options, classes)
    lazy = found.of if isinstance(found, Lazy) else None
    known = options_of(DataOptions)
    rules = [
        (_OF_IMAGES, isinstance(lazy, images.ImageFolder), "a folder of images"),
        (_SCALES, lazy is None or isinstance(lazy, images.ImageFolder), "images"),
        (("seconds",), isinstance(lazy, audio.AudioFolder), "a folder of recordings"),
        (("categories",), _is_table(given), "a table"),
        (_OF_TEXT, isinstance(lazy, Text), "a file of texts"),
    ]
    for names, holds, what in rules:
        wrong = next((name for name in names if known[name].is_set(vars(options))), None)
        if wrong is not None and not holds:
            raise UsageError(f"{found.source}: --{wrong.replace('_', '-')} needs {what}")
    return found


def _opened(given: Given, seed: int, options: DataOptions, classes: Classes) -> Source:
    if isinstance(given, Mapping):
        return Examples(
            "data", {name: numpy_of("data", name, each) for name, each in given.items()}
        )
    if not isinstance(given, str | os.PathLike):
        return _of_python(given, seed)
    text = os.fspath(given)
    path = Path(text)
    if not path.exists() and ":" in text:
        return _of_function(imported(text), text, seed)
    found = TextFile.of(path) if path.is_file() else None
    if found is not None:
        categories = Categories(tuple(options.categories), classes)
        return Lazy(Text(text, found, options, categories), categories.names)
    if _is_table(given):
        return _table(path, options, classes)
    if path.is_dir():
        return _folder(path, options, seed, classes)
    if path.suffix == safetensors.SUFFIX:
        return Examples(text, safetensors.load(path).stored, (Watched.of(path),))
    return Examples(text, inputs.read(text))


def _is_table(given: Given) -> bool:
    """Whether a path is that of a table: a file, or a folder that `datasets` saved."""
    if not isinstance(given, str | os.PathLike):
        return False
    path = Path(given)
    if path.is_dir():
        return any((path / name).is_file() for name in (tables.STATE, tables.SPLITS))
    return path.suffix in (*tables.SUFFIXES, *text_tables.SUFFIXES) and path.exists()


def _table(path: Path, options: DataOptions, classes: Classes) -> Examples:
    found = Categories(tuple(options.categories), classes)
    is_text = path.suffix in text_tables.SUFFIXES and not path.is_dir()
    arrays = (text_tables if is_text else tables).columns(path, found)
    named = tables.classes_of(path) if path.is_dir() else {}
    return Examples(str(path), arrays, classes={**named, **found.names})


def _folder(folder: Path, options: DataOptions, seed: int, classes: Classes) -> Source:
    """A folder of `.npy` files, which stay there, or of a folder a class."""
    files = sorted(folder.glob("*.npy"))
    if files:
        arrays = {f.stem: npy.stored(f) for f in files}
        return Examples(str(folder), arrays, tuple(map(Watched.of, files)))
    for kind, made in ((images, images.ImageFolder), (audio, audio.AudioFolder)):
        found = media.ClassFolder.of(folder, kind.SUFFIXES, classes.get(media.LABEL, ()))
        if found.files:
            return Lazy(made.of(found, options, seed), {media.LABEL: found.classes})
        inner = media.sets_of(folder, kind.SUFFIXES)
        if inner:
            raise UsageError(f"{folder}: holds the sets {some(inner)}: name one, as "
                             f"{folder / inner[0]}")  # fmt: skip
    raise UsageError(
        f"{folder}: the folder holds no .npy file, no folder of images or recordings for each "
        "class, and no data set that was saved"
    )


def numpy_of(source: str, name: str, given: Any) -> Array:
    """An array of anything that holds one; raises UsageError if that is none."""
    try:
        return as_numpy(array_of(given))
    except ValueError as error:
        raise UsageError(f"{source}: {name!r} is no array ({error})") from error


def imported(text: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        UsageError: there is no such module or function.
    """
    function = function_at(text)
    if function is None:
        raise UsageError(f"{text}: no such file, and no module {text.partition(':')[0]!r}")
    return function


def _of_python(given: Any, seed: int) -> Source:
    """The result of a function, a data set with a length, or an iterable of batches."""
    source = getattr(given, "__name__", "data")
    if callable(given) and not isinstance(given, Iterable):
        return _of_function(given, source, seed)
    if isinstance(given, Iterator):
        return Stream(source, Once(source, given), once=True, code=given)
    if isinstance(given, Dataset):
        return Lazy(Indexed(type(given).__name__, given, user_code))
    return Stream(type(given).__name__, partial(again, given), code=given)


def _of_function(function: Callable[..., Any], source: str, seed: int) -> Source:
    """The result of a function: arrays by name, which are all examples, or batches."""
    first = [_called(function, source, 0, seed)]
    if isinstance(first[0], Mapping):
        with user_code(source, function):
            arrays = {name: numpy_of("data", name, each) for name, each in first[0].items()}
        return Examples(source, arrays)

    def make(epoch: int) -> Iterable[Any]:
        """The batches of an epoch, those of the user's function."""
        made: Iterable[Any] = (
            first.pop() if first and not epoch else _called(function, source, epoch, seed)
        )
        return made

    return Stream(source, make, code=function)


def _called(function: Callable[..., Any], source: str, epoch: int, seed: int) -> Any:
    known = {"epoch": epoch, "seed": seed}
    takes = parameters_of(function)
    with user_code(source, function):
        made = function(**{name: value for name, value in known.items() if name in takes})
    if not isinstance(made, Iterable) or isinstance(made, str | bytes):
        raise UserCodeError(
            f"{source}: returned {type(made).__name__}; arrays by name, or what yields batches, "
            f"are needed{place_of(function)}"
        )
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
