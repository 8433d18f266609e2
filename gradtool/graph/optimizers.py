"""The optimizers of a training step, by name."""

from __future__ import annotations

from typing import Literal, get_args

Name = Literal[
    "none", "sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop", "lamb", "lion", "adafactor",
    "muon",
]  # fmt: skip
OPTIMIZERS: tuple[str, ...] = get_args(Name)
UPDATING = tuple(name for name in OPTIMIZERS if name != "none")
SPARSE_PREFIX = "Sparse"  # of the composites that update some rows of a table
