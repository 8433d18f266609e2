"""What a model sees of a text: of a batch, others that have to be the same to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradtool.passes.document_mask import DOCUMENTS
from gradtool.training.padding import MORE, Array, Lengths

PADDED = (
    "padding changes the loss or a gradient: export the model with an attention_mask that it "
    "heeds, or give texts of one length"
)
SEEN = (
    "the model sees the tokens that it is to predict, so that it would learn to copy them: export "
    "it with causal attention"
)
ACROSS = (
    "the texts of a packed row see those before them: the model passes on more than attention that "
    "is found here; leave out --pack where that matters"
)
TRIED = 32  # tokens that show it
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Trial:
    """How to try it: `ids` takes the tokens, and `labels` are inputs that take those to learn.

    The length may be `fixed` by the model.
    """

    ids: str
    padding: Lengths
    labels: tuple[str, ...]
    fixed: bool

    def of(self, batch: Arrays, lengths: Array, *, pads: bool) -> tuple[Arrays, dict[str, Arrays]]:
        """A few tokens of a batch of rows of some lengths, and others by what is wrong with them.

        To a causal model that heeds masks they are the same: rows that are padded otherwise, if
        data are padded at all, and rows with other tokens behind the last place with a label.
        """
        batch, own, last = self._shortened(batch, lengths)
        places, found = np.arange(self._width(batch)), dict[str, Arrays]()
        if pads:
            behind = places >= own[:, None]
            padded = (
                self._replaced(batch, behind) if self.fixed else self.padding.padded(batch, MORE)
            )
            found[PADDED] = padded
        if self.labels:
            found[SEEN] = self._replaced(batch, (places > last) & (places < own[:, None]))
        return batch, found

    def across(self, pair: Arrays, behind: int) -> Arrays:
        """Two packed documents with other tokens in the first, which ends at `behind`."""
        return self._replaced(pair, np.arange(self._width(pair)) < behind)

    def _shortened(self, batch: Arrays, lengths: Array) -> tuple[Arrays, Array, int]:
        """Tokens about the first labels of a batch, how many of each row, and the last place.

        The place is that of the last label: those behind it are left out, tokens are not.
        """
        whole = self._width(batch)
        first = self._first(batch)
        start = 0 if self.fixed else max(first - TRIED // 2, 0)
        width = whole if self.fixed else min(TRIED, whole)
        made, own = dict(batch), np.clip(lengths - start, 0, width)
        last = first - start + max(int(own.max()) - 1 - (first - start), 0) // 3
        for name, (axis,) in self.padding.axes.items():
            made[name] = batch[name].take(np.arange(start, start + width), axis, mode="clip")
            if name in self.labels:
                np.moveaxis(made[name], axis, -1)[..., last + 1 :] = self.padding.fills[name]
            if name == DOCUMENTS:  # from 0, that of what is behind a row
                made[name] = np.maximum(made[name] - made[name].take([0], axis), 0)
        return made, own, last

    def _first(self, batch: Arrays) -> int:
        """The first place of a batch that has a label."""
        axes, fills = self.padding.axes, self.padding.fills
        learned = [(batch[name] != fills[name]).any(1 - axes[name][0]) for name in self.labels]
        return min((int(each.argmax()) for each in learned), default=0)

    def _width(self, batch: Arrays) -> int:
        return int(batch[self.ids].shape[self.padding.axes[self.ids][0]])

    def _replaced(self, batch: Arrays, places: Array) -> Arrays:
        """A batch with other tokens in some places [rows, width]."""
        (axis,) = self.padding.axes[self.ids]
        ids = np.moveaxis(batch[self.ids], axis, -1)
        other = np.where(places, np.where(ids == 0, 1, 0), ids).astype(ids.dtype)
        return {**batch, self.ids: np.moveaxis(other, -1, axis)}
