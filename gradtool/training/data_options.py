"""How files become examples, as a record that `TrainOptions` extends."""
# ruff: noqa: RUF009 - `option` makes a field

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gradtool.errors import UsageError
from gradtool.workloads.options import option

_SIZE = re.compile(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%|([1-9]\d*)")


@dataclass(frozen=True)
class DataOptions:
    """How to read data; see docs/data.md."""

    split: str | None = option(
        "text", None, "Hold this share of the examples, or so many, out of the data to evaluate "
        "on, drawn by --seed.", metavar="P%|N", group="Data")  # fmt: skip
    categories: Sequence[str] = option(
        "texts", (), "Take columns of texts that match as classes, in the order of their names.",
        metavar="GLOB", group="Data")  # fmt: skip
    lengths: str | None = option(
        "text", None, "Round open sizes of batches up to these and pad what comes in, where a mask "
        "or ignored labels leave the gradients as they are; auto: eight sizes a doubling.",
        metavar="auto|N,N,...", shown="as they come; of texts auto", excludes="memory stages",
        why="has batches of several sizes", group="Data")  # fmt: skip
    tokenizer: str | Path | None = option(
        "path", None, "Take texts by this tokenizer.json, or the one in this folder.",
        metavar="FILE|DIR", shown="beside the model", group="Text")  # fmt: skip
    max_length: int | None = option(
        "whole", None, "Take no more tokens of a text, and cut a plain one into windows of them.",
        least=2, most=1 << 24, metavar="N", shown="the model's length, 1024 at most",
        group="Text")  # fmt: skip
    too_long: Literal["cut", "skip", "refuse"] = option(
        "choice", "cut", "What becomes of texts of more tokens: cut to them, left out, or refused.",
        choices=("cut", "skip", "refuse"), group="Text")  # fmt: skip
    mask_prompt: bool | None = option(
        "switch", None, "Learn completions and what the assistant says, and nothing else of a "
        "text.", shown="of prompts and messages, where genai_config.json lies beside the model",
        group="Text")  # fmt: skip
    pack: bool = option(
        "flag", False, "Put several texts into a row of --max-length tokens; attention stays "
        "within each.", group="Text")  # fmt: skip
    image_size: str | None = option(
        "text", None, "Resize images: the shorter edge to N pixels, or all to HxW.",
        metavar="N|HxW", shown="the model's size", group="Data")  # fmt: skip
    image_crop: str | None = option(
        "text", None, "Cut the middle out of each image, N by N or HxW pixels.",
        metavar="N|HxW", shown="the model's size", group="Data")  # fmt: skip
    image_mean: str | None = option(
        "text", None, "Subtract this of colors from 0 to 1, one number or one a channel.",
        metavar="X[,X,...]", shown="0, or what the file says", group="Data")  # fmt: skip
    image_std: str | None = option(
        "text", None, "Divide colors by this then.", metavar="X[,X,...]",
        shown="1, or what the file says", group="Data")  # fmt: skip
    flip: bool = option(
        "flag", False, "Mirror half of the images that are trained on, drawn anew each epoch.",
        group="Data")  # fmt: skip
    random_crop: int | None = option(
        "whole", None, "Cut images that are trained on at a random place, after N pixels of 0 are "
        "put around them.", least=0, most=4096, metavar="N", group="Data")  # fmt: skip
    seconds: float | None = option(
        "number", None, "Cut recordings to this length, or fill them up with silence.", above=0,
        metavar="S", shown="the model's length", group="Data")  # fmt: skip
    workers: int = option(
        "whole", 2, "Threads that decode images and recordings, or processes that tokenize texts.",
        least=1, most=256, metavar="N", group="Data")  # fmt: skip

    @property
    def one_size(self) -> bool:
        """Whether all batches have to have the same sizes."""
        return False

    def held_out(self, examples: int) -> int:
        """How many of the examples are held out.

        Raises:
            UsageError: the split is no share or number, or leaves nothing on one of its sides.
        """
        text = self.split or ""
        found = _SHARE.fullmatch(text)
        if found is None:
            raise UsageError(f"--split {text}: write a share as 10%, or a number of examples")
        share, number = found.groups()
        count = int(number) if number else round(examples * float(share) / 100)
        if not 0 < count < examples:
            raise UsageError(
                f"--split {text}: {count} of {examples} examples to evaluate on leaves "
                f"{max(examples - count, 0)} to train on: both need at least one"
            )
        return count


def parse_size(text: str, flag: str) -> tuple[int, int | None]:
    """`224` as (224, None) and `224x160` as (224, 160): a height and a width in pixels.

    Raises:
        UsageError: it has another form.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{flag} {text}: write pixels as 224, or height and width as 224x160")
    return int(found[1]), int(found[2]) if found[2] else None


def parse_numbers(text: str, flag: str) -> tuple[float, ...]:
    """`0.5,0.4,0.4` as numbers. Raises UsageError if one is none, or infinite."""
    try:
        found = tuple(map(float, text.split(",")))
    except ValueError:
        found = ()
    if not found or not all(abs(each) < float("inf") for each in found):
        raise UsageError(f"{flag} {text}: write a number, or one a channel as 0.5,0.5,0.5")
    return found
