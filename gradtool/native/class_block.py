"""Blocks of the scores of a linear layer, and their part in the cross-entropy of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.native.call import Array, Call, Signature

CLASS_BLOCK = Signature(
    "class_block",
    "z labels weights top total picked even loss lse spread strange",
    "rows count first classes wide ignores ignored slots",
    "softcap",
)
CLASS_BLOCK_GRAD = Signature(
    "class_block_grad",
    "z labels weights lse of_all of_label of_even dbias",
    "rows count first classes wide slots",
    "softcap",
)


@dataclass(frozen=True)
class Block:
    """Scores `z` [rows, count] of the classes from `first` on, of so many, and their labels."""

    z: Array
    labels: Array
    first: int
    classes: int
    softcap: float = 0.0
    weights: Array | None = None

    def words(self) -> dict[str, Any]:
        """What both calls take."""
        rows, count = self.z.shape
        return {
            "z": self.z, "labels": self.labels, "weights": self.weights, "rows": rows,
            "count": count, "first": self.first, "classes": self.classes,
            "wide": int(self.labels.dtype == np.int64), "softcap": self.softcap,
        }  # fmt: skip


def class_block(
    block: Block, sums: dict[str, Array | None], results: dict[str, Array | None], strange: Array,
    *, ignore_index: int | None = None,
) -> Call:  # fmt: skip
    """Take a block into the `sums` top, total, picked and even; the last makes the `results`.

    These are loss, lse and spread.  z is capped after that.
    """
    return CLASS_BLOCK.bind(
        **block.words(), **sums, **results, strange=strange, ignores=int(ignore_index is not None),
        ignored=ignore_index or 0,
    )  # fmt: skip


def class_block_grad(block: Block, of: dict[str, Array | None], dbias: Array | None) -> Call:
    """Put the gradient by the scores, without a cap, in the place of z; `dbias` is its sum.

    `of` are lse, of_all, of_label and of_even.
    """
    return CLASS_BLOCK_GRAD.bind(**block.words(), **of, dbias=dbias)
