"""Texts as what a language model takes: tokens, masks, positions and labels by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.predicates import is_float
from gradtool.io import genai
from gradtool.operators.losses import IGNORED
from gradtool.passes.document_mask import DOCUMENTS
from gradtool.text.words import some
from gradtool.training import text_tables
from gradtool.training.callbacks import Watcher
from gradtool.training.checks import range_of
from gradtool.training.columns import Categories, chosen
from gradtool.training.data_options import DataOptions
from gradtool.training.input_spec import InputSpec
from gradtool.training.iterables import Column
from gradtool.training.padding import AUTO, Lengths, sizes_of
from gradtool.training.sampler import Indices
from gradtool.training.text_files import TextFile
from gradtool.training.text_trial import TRIED, Trial
from gradtool.training.token_gathering import Gathered, Gathering
from gradtool.training.token_rows import Array, TokenRows
from gradtool.training.tokenizer import TokenizerFiles
from gradtool.training.tokenizer_pool import TokenizerPool

IDS, MASK, POSITIONS, TYPES, LABELS = (
    "input_ids", "attention_mask", "position_ids", "token_type_ids", "labels",
)  # fmt: skip
BESIDE = (MASK, POSITIONS, TYPES, DOCUMENTS)
USUAL = 1024  # tokens, where nobody says how long a text may be
Arrays = dict[str, Array]
Read = Callable[[Indices, int], Array]  # rows of some width
FOLDER = "gradtool.folder"  # of a model, where it was found


@dataclass
class Text:
    """A file of texts, before it is known what a model takes.

    `categories` gets the names of classes of its other columns.  What was read for a model are
    `tokens`, in rows, and a `trial` of what it sees of them; where texts are `packed`, two in a
    row, and the same with another first one.
    """

    source: str
    file: TextFile
    options: DataOptions
    categories: Categories
    tokens: TokenRows | None = None
    trial: Trial | None = None
    packed: tuple[Arrays, Arrays] | None = None
    watcher: Watcher = field(default_factory=Watcher)
    _width: _Width | None = None
    _held: dict[int, Gathered] = field(default_factory=dict)
    _files: TokenizerFiles | None = None
    _about: tuple[int, Mapping[str, int | None]] = (0, {})

    def arrays(
        self, takes: InputSpec, names: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str], list[str], dict[str, Any]]:
        """Arrays, their names by input, what people should hear, and nothing to be kept.

        Raises:
            UsageError: no input takes tokens, the tokenizer is missing or of another model, or a
                text is wrong; the line is named.
        """
        if self._is_table(takes, names):
            return dict(text_tables.columns(self.file.path, self.categories)), {}, [], {}
        ids = self._input(takes, names)
        shape = takes.inputs[ids].shape
        size = None if shape is None else shape[1 - (takes.axes[ids] or 0)]
        folder = takes.model.meta.get(FOLDER)
        folder = None if folder is None else Path(folder)
        self._files = self._files or TokenizerFiles.of(self.options.tokenizer, folder)
        context = None if folder is None else genai.context(folder)
        length = self._length(size if isinstance(size, int) else None, context)
        if length not in self._held:
            is_decoder = folder is not None and genai.is_folder(folder)
            self._held[length] = self._read(length, is_decoder=is_decoder)
        rows, others, said = self._held[length]
        found, ahead = self._matched(takes, names, ids)
        self.tokens, is_fixed = rows, isinstance(size, int)
        self._require_known(takes, rows, ids, [n for n, of in found.items() if of in ahead])
        is_one = is_fixed or not takes.labels or self.options.one_size
        longest = length if is_fixed else int(rows.lengths.max())
        sizes = (longest,) if is_one else sizes_of(self.options.lengths or AUTO)
        self._width = _Width(rows, longest, length if sizes else longest, sizes, is_fixed)
        arrays = self._laid(takes, found, ahead, self._width)
        self.packed = self._pair(takes, found, ahead) if self.options.pack else None
        return {**others, **arrays}, found, said, {}

    def widths(self, lengths: Array) -> set[int]:
        """How wide batches of rows of some lengths may be."""
        assert self._width is not None  # noqa: S101 - it is bound
        return set(map(self._width.rounded, np.unique(lengths).tolist()))

    def described(self) -> dict[str, Any]:
        """What decides the numbers of the examples."""
        return {} if self.tokens is None else {"tokens": self.tokens.digest}

    def _is_table(self, takes: InputSpec, names: Mapping[str, str]) -> bool:
        """Whether the columns beside a text are all that the model takes."""
        found, others = (names.get(name, name) for name in takes.inputs), list(self.file.others)
        return self.file.form == "text" and all(
            of in others or bool(chosen(of, others, ())) for of in found
        )

    # ------------------------------------------------------------------------ inputs

    def _input(self, takes: InputSpec, names: Mapping[str, str]) -> str:
        """The input that takes tokens."""
        given = {name: names.get(name, name) for name in takes.inputs}
        called = [name for name, of in given.items() if of == IDS]
        free = [
            name for name, value in takes.inputs.items()
            if name not in takes.labels and given[name] not in BESIDE
            and not is_float(value) and value.shape is not None and len(value.shape) == 2
        ]  # fmt: skip
        found = called or free
        if len(found) != 1:
            shown = some([f"{name} {value.shape}" for name, value in takes.inputs.items()])
            why = "several inputs could take tokens" if found else "no input takes tokens"
            raise UsageError(
                f"{self.source}: {why}: name it with --map INPUT={IDS}; the model takes {shown}"
            )
        if found[0] in takes.labels:
            raise UsageError(
                f"{self.source}: {found[0]!r} takes the tokens and is the labels too, of which "
                "none could be left out: give the labels a name of their own (--labels)"
            )
        _require_rank(self.source, found[0], takes.inputs[found[0]])
        return found[0]

    def _matched(
        self, takes: InputSpec, names: Mapping[str, str], ids: str
    ) -> tuple[dict[str, str], dict[str, int]]:
        """What each input takes, by its name; of labels, how many tokens ahead they are.

        A loss that shifts takes the tokens themselves; for any other one they are those that
        come next.
        """
        found, ahead = {ids: IDS}, dict[str, int]()
        for name, value in takes.inputs.items():
            given = names.get(name, name)
            rank = None if value.shape is None else len(value.shape)
            if name in takes.labels and name not in names and rank == 2 and not is_float(value):
                shift = 0 if takes.shifts.get(name) else 1
                key = LABELS if ahead.get(LABELS, shift) == shift else name
                found[name], ahead[key] = key, shift
            elif given in BESIDE:
                _require_rank(self.source, name, value)
                found[name] = given
        return found, ahead

    def _laid(
        self, takes: InputSpec, found: Mapping[str, str], ahead: Mapping[str, int], width: _Width
    ) -> dict[str, Column]:
        """What inputs take of the rows: of several that take the same, in the type of the first."""
        rows = width.rows
        padding = (self._files.specials if self._files else {}).get("pad_token", "")
        fill = self._about[1].get(padding) or 0
        made: dict[str, Column] = {}
        fills: dict[str, int] = {}
        for name, of in found.items():
            value = takes.inputs[name]
            limits = range_of(value)
            ignored = IGNORED if limits is None or limits.ignored is None else limits.ignored
            readers: dict[str, Read] = {
                IDS: partial(rows.tokens, fill=fill), MASK: rows.mask, POSITIONS: rows.positions,
                TYPES: rows.types, DOCUMENTS: rows.numbers,
            }  # fmt: skip
            read = readers.get(of) or partial(rows.labels, ignored=ignored, ahead=ahead[of])
            fills[name] = {IDS: fill}.get(of, ignored if of in ahead else 0)
            dtype = np.dtype(value.dtype.numpy() if value.dtype is not None else np.int64)
            turned = takes.axes[name] == 1
            shape = (len(rows.lengths), width.longest)
            if of not in made:
                taken = partial(_taken, read, width, dtype, turned=turned)
                made[of] = Column(dtype, shape[::-1] if turned else shape, taken)
        axes = {name: (1 - (takes.axes[name] or 0),) for name in found}
        (ids,) = (name for name, of in found.items() if of == IDS)
        labels = tuple(name for name, of in found.items() if of in ahead)
        self.trial = Trial(ids, Lengths(axes, fills), labels, fixed=width.fixed)
        return made

    def _pair(
        self, takes: InputSpec, found: Mapping[str, str], ahead: Mapping[str, int]
    ) -> tuple[Arrays, Arrays]:
        """Two packed documents as a batch, and the same with other tokens in the first."""
        assert self.tokens is not None  # noqa: S101 - they were read
        assert self._width is not None and self.trial is not None  # noqa: PT018, S101
        is_fixed, most = self._width.fixed, self._width.longest
        rows = self.tokens.pair(min(most, TRIED))
        size = most if is_fixed else len(rows.ids)
        laid = self._laid(takes, found, ahead, _Width(rows, size, size, (size,), is_fixed))
        which = np.zeros(takes.size or 1, np.int64)
        pair = {name: laid[of].take(which, takes.axes[name] or 0) for name, of in found.items()}
        return pair, self.trial.across(pair, int(rows.documents[1]))

    def _require_known(
        self, takes: InputSpec, rows: TokenRows, ids: str, labels: Iterable[str]
    ) -> None:
        """Refuse tokens that the model has no row or no score for."""
        assert self._files is not None  # noqa: S101 - it was read with one
        limits = [range_of(takes.inputs[name]) for name in (ids, *labels)]
        most = min((each.high for each in limits if each is not None), default=None)
        highest = int(rows.ids.argmax())
        if most is not None and rows.ids[highest] > most:
            raise UsageError(
                f"{self.source}: line {rows.line_of(highest)}: token {rows.ids[highest]} is beyond "
                f"the vocabulary of the model, {most + 1} tokens; {self._files.path} has "
                f"{self._about[0]}: is it that of another model?"
            )

    # ----------------------------------------------------------------------- reading

    def _length(self, fixed: int | None, context: int | None) -> int:
        """How many tokens of a text are taken, at most."""
        assert self._files is not None  # noqa: S101 - it is found first
        given, known = self.options.max_length, fixed or context or self._files.context
        if given is not None and known is not None and given > known:
            raise UsageError(
                f"{self.source}: --max-length {given}: the model takes {known} tokens at most"
            )
        return given or fixed or min(known or USUAL, USUAL)

    def _read(self, length: int, *, is_decoder: bool) -> Gathered:
        """The tokens of all texts of up to a length; other columns; what people should hear."""
        assert self._files is not None  # noqa: S101 - it is found first
        form, masks = self.file.form, self.options.mask_prompt
        if masks and form in ("plain", "text"):
            raise UsageError(f"{self.source}: --mask-prompt needs prompts or messages")
        if masks is None:
            masks = is_decoder and form in ("prompt", "messages")
        options = replace(self.options, mask_prompt=masks)
        if form == "messages":
            self._files.require_template(self.source)
        made = Gathering(self.file, options, self.categories, length)
        asked = self.file.requests(masks=masks)
        with TokenizerPool(self._files, options.workers, chats=form == "messages") as pool:
            self._about = pool.first.size, pool.first.ids
            for each in pool.answered(self.source, asked):
                made.add(*each)
                self.watcher.tokenizes(self.source, *made.counted)
        return made.finished()


@dataclass(frozen=True)
class TextRows:
    """Some rows of a text that is bound, all where none are chosen."""

    text: Text
    chosen: Indices | None

    @property
    def lengths(self) -> Array:
        """The tokens of each row."""
        assert self.text.tokens is not None  # noqa: S101 - it is bound
        found = self.text.tokens.lengths
        return found if self.chosen is None else found[self.chosen]

    @property
    def fixed(self) -> int | None:
        """The tokens of each row, where the model fixes them."""
        width = self.text._width  # noqa: SLF001 - of what these rows are of
        return width.longest if width is not None and width.fixed else None

    @property
    def longest(self) -> int:
        """The most tokens of a row."""
        return int(self.lengths.max())

    def cut(self, batch: Arrays, width: int) -> Arrays:
        """A batch of rows of other tokens than there are, so many of each."""
        assert self.text.trial is not None  # noqa: S101 - it is bound
        axes = self.text.trial.padding.axes
        return {
            name: array.take(np.arange(width), axes[name][0], mode="clip") if name in axes
            else array for name, array in batch.items()
        }  # fmt: skip

    @property
    def spread(self) -> Array | None:
        """The tokens of each row, where batches of them have several widths."""
        return self.lengths if len(self.text.widths(self.lengths)) > 1 else None

    def trial(
        self, batch_of: Callable[[Indices], Arrays], count: int | None
    ) -> tuple[Arrays, dict[str, Arrays]]:
        """The shortest rows as a batch, and what a model sees as the same; see `Trial`."""
        assert self.text.trial is not None  # noqa: S101 - it is bound
        lengths = self.lengths
        sizes = set(np.unique(lengths).tolist())
        rows = np.argsort(lengths, kind="stable")[: count or 1]
        is_padded = len(sizes) > 1 or self.text.widths(lengths) != sizes
        return self.text.trial.of(batch_of(rows), lengths[rows], pads=is_padded)


@dataclass(frozen=True)
class _Width:
    """How wide batches of rows are: as the longest of them, rounded up to sizes of at most `most`.

    A width may be `fixed` by the model.
    """

    rows: TokenRows
    longest: int
    most: int
    chosen: tuple[int, ...]
    fixed: bool

    def of(self, indices: Indices) -> int:
        """The width of a batch of some rows."""
        return self.rounded(int(self.rows.lengths[indices].max()))

    def rounded(self, size: int) -> int:
        """The width of a batch whose longest row has so many tokens."""
        return min(Lengths({}, {}, self.chosen).rounded(size), self.most)


def _taken(
    read: Read, width: _Width, dtype: np.dtype[Any], indices: Indices, *, turned: bool
) -> Array:
    """What is read of some rows, [rows, width], or turned."""
    made = read(indices, width.of(indices)).astype(dtype)
    return np.ascontiguousarray(made.T) if turned else made


def _require_rank(source: str, name: str, value: ir.Value) -> None:
    if value.shape is None or len(value.shape) != 2:
        raise UsageError(
            f"{source}: input {name!r} has the shape {value.shape}: of texts it takes [batch, "
            "length]; a function of yours can give it (--data module:function)"
        )
