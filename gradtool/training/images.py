"""Folders of images (extra `image`): resized, cut and scaled to what a model takes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.metadata import notes
from gradtool.io.stored import opened
from gradtool.text.extras import install
from gradtool.training.data_options import DataOptions, parse_numbers, parse_size
from gradtool.training.decoding import Array, Decoded, draws
from gradtool.training.input_spec import InputSpec
from gradtool.training.media import LABEL, ClassFolder, Layout, matched, require_classes

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
IMAGE = "image"
KEY = "gradtool.image"  # of a trained file: how its images were made
RANGE, PIXELS = "Image.NominalPixelRange", "Image.BitmapPixelFormat"  # of ONNX's MetadataProps.md
HELD = 16 << 20  # bytes of decoded images
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_RANGES = {
    "NominalRange_0_255": (0.0, 1 / 255), "Normalized_0_1": (0.0, 1.0),
    "Normalized_1_1": (0.5, 0.5), "NominalRange_16_235": (-16 / 219, 1 / 219),
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """Colors from 0 to 1 become `(color - mean) / std`, by channel; `bgr` turns channels round."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False

    @classmethod
    def of(cls, model: ir.Model, options: DataOptions) -> tuple[Scale, str]:
        """The scale that options, or else the metadata of a model, say; and who says it.

        Raises:
            UsageError: an option is no numbers, or a std is not above 0.
        """
        props = notes(model)
        bgr = props.get(PIXELS, "").lower().startswith("bgr")
        if options.image_mean is not None or options.image_std is not None:
            mean = parse_numbers(options.image_mean or "0", "--image-mean")
            std = parse_numbers(options.image_std or "1", "--image-std")
            if min(std) <= 0:
                raise UsageError(f"--image-std {options.image_std}: has to be above 0")
            return cls(mean, std, bgr), "options"
        noted = _noted(props.get(KEY, ""))
        if noted is not None:
            return noted, KEY
        if props.get(RANGE) in _RANGES:
            low, width = _RANGES[props[RANGE]]
            return cls((low,), (width,), bgr), RANGE
        return cls(bgr=bgr), ""

    def applied(self, pixels: Array, axis: int) -> Array:
        """Bytes whose channels lie along an axis, as float32."""
        sizes = [1] * pixels.ndim
        sizes[axis] = -1
        mean, std = (np.array(each, np.float32).reshape(sizes) for each in (self.mean, self.std))
        made: Array = pixels.astype(np.float32)
        made /= np.float32(255)
        if any(self.mean):
            made -= mean
        if set(self.std) != {1.0}:
            made /= std
        return made

    def require(self, channels: int, source: str) -> None:
        """Refuse numbers that are of other channels.

        Raises:
            UsageError: there are neither one nor as many as channels.
        """
        for what, found in (("mean", self.mean), ("std", self.std)):
            if len(found) not in (1, channels):
                raise UsageError(
                    f"{source}: --image-{what} has {len(found)} numbers, and images have "
                    f"{channels} channels"
                )


def _noted(text: str) -> Scale | None:
    """The scale that a file says it was trained with; None where it says none."""
    try:
        found = json.loads(text)
        mean, std = (tuple(map(float, found[what])) for what in ("mean", "std"))
        return Scale(mean, std, bool(found["bgr"])) if min(std) > 0 else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


@dataclass(frozen=True)
class Images:
    """The images of a folder, made as they are decoded.

    Each is resized to `size` (of one number the shorter edge), and `crop` is cut out of it.
    """

    found: ClassFolder
    layout: Layout
    channels: int
    size: tuple[int, int | None] | None
    crop: tuple[int, int]
    scale: Scale | None
    flip: bool
    padding: int | None
    seed: int
    sizes: tuple[tuple[int, int], ...]
    held: dict[int, Array] = field(default_factory=dict)

    def one(self, example: int, epoch: int | None) -> Array:
        """An example [C, H, W] or [H, W, C]; of an epoch it is drawn, else it is as it is.

        Raises:
            UsageError: the file is no such image, or smaller than what is cut out of it.
        """
        pixels = self._pixels(example)
        is_drawn = epoch is not None and (self.flip or self.padding is not None)
        mirrored, *place = draws(self.seed, epoch or 0, example, 3) if is_drawn else (1, 0, 0)
        if self.padding and epoch is not None:
            pixels = np.pad(pixels, ((self.padding,) * 2, (self.padding,) * 2, (0, 0)))
        top, left = self._corner(pixels.shape, place, is_drawn=epoch is not None)
        pixels = pixels[top : top + self.crop[0], left : left + self.crop[1]]
        if self.flip and not mirrored & 1:
            pixels = pixels[:, ::-1]
        if self.scale is not None and self.scale.bgr and self.channels > 1:
            pixels = pixels[..., [2, 1, 0, *range(3, self.channels)]]
        if self.layout.axis == 1:
            pixels = pixels.transpose(2, 0, 1)
        return pixels if self.scale is None else self.scale.applied(
            pixels, 0 if self.layout.axis == 1 else 2
        )  # fmt: skip

    def _pixels(self, example: int) -> Array:
        """The resized image of an example, [H, W, C] of bytes; held if all take `HELD` at most."""
        from PIL import Image

        held = self.held.get(example)
        if held is not None:
            return held
        path = self.found.files[example]
        with opened(path) as file, _named(path), Image.open(file, formats=_FORMATS) as image:
            if image.size != self.sizes[example]:
                raise UsageError(f"{path}: has changed since training began")
            made = image.convert(_MODES[self.channels])
            if self.size is not None:
                made = made.resize(_resized(made.size, self.size), Image.Resampling.BILINEAR)
            pixels = np.asarray(made).reshape(*made.size[::-1], self.channels)
        if self.is_held:
            self.held[example] = pixels
        return pixels

    @cached_property
    def is_held(self) -> bool:
        """Whether decoded images stay in memory."""
        sizes = (s if self.size is None else _resized(s, self.size) for s in self.sizes)
        return sum(width * height for width, height in sizes) * self.channels <= HELD

    def require_size(self, path: Path, size: tuple[int, int]) -> None:
        """Refuse an image smaller than its crop.

        Raises:
            UsageError: naming the file.
        """
        width, height = size if self.size is None else _resized(size, self.size)
        if height < self.crop[0] or width < self.crop[1]:
            resized = "" if self.size is None else ", resized"
            raise UsageError(
                f"{path}: is {height}x{width} pixels{resized}, less than the "
                f"{self.crop[0]}x{self.crop[1]} that are cut out of it: give --image-size "
                f"{max(self.crop)} or more"
            )

    def _corner(
        self, shape: tuple[int, ...], place: list[int], *, is_drawn: bool
    ) -> tuple[int, int]:
        """The top and the left of the part cut out of an image [H, W, C]."""
        room = [shape[0] - self.crop[0], shape[1] - self.crop[1]]
        if is_drawn and self.padding is not None:
            top, left = (word % (each + 1) for word, each in zip(place, room, strict=True))
            return top, left
        return room[0] // 2, room[1] // 2


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images by class, before it is known what a model takes."""

    source: str
    found: ClassFolder
    options: DataOptions
    seed: int
    sizes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, folder: ClassFolder, options: DataOptions, seed: int) -> ImageFolder:
        """A folder whose images can be read, by what their headers say.

        Raises:
            UsageError: Pillow is not installed, or a file is no such image.
        """
        try:
            from PIL import Image
        except ImportError as error:
            what = f"{folder.folder}: to read images takes Pillow: {install('image')}"
            raise UsageError(what) from error
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            sizes = tuple(map(_size_of, folder.files))
        return cls(str(folder.folder), folder, options, seed, sizes)

    def arrays(
        self, takes: InputSpec, names: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str], list[str], dict[str, Any]]:
        """Arrays, their names by input, messages, and metadata for a trained file.

        Raises:
            UsageError: no input takes images, or nothing tells their size.
        """
        name, found = matched(takes, names, self.source, IMAGE, (4,))
        layout = Layout.of(takes, name, tuple(_MODES))
        channels = layout.channels or 3
        if channels not in _MODES:
            raise UsageError(f"{self.source}: input {name!r} takes {channels} channels: images "
                             "have 1, 3 or 4")  # fmt: skip
        size, crop = self._sizes(name, layout)
        dtype = takes.inputs[name].dtype
        is_float = dtype is not None and dtype.is_floating_point()
        scale, by = Scale.of(takes.model, self.options)
        scale.require(channels, self.source)
        images = Images(
            self.found, layout, channels, size, crop, scale if is_float else None,
            self.options.flip, self.options.random_crop, self.seed, self.sizes,
        )  # fmt: skip
        for path, found_size in zip(self.found.files, self.sizes, strict=True):
            images.require_size(path, found_size)
        shape = (len(self.found.files), *layout.laid(channels, crop))
        made = np.dtype(np.float32 if is_float else np.uint8)
        arrays = {
            IMAGE: Decoded(made, shape, images.one, self.options.workers),
            LABEL: self.found.labels,
        }
        said = [require_classes(takes, self.source, found, len(self.found.classes))]
        if is_float and not by:
            said.append(f"{self.source}: colors are taken from 0 to 1; --image-mean and "
                        "--image-std scale them otherwise")  # fmt: skip
        kept = {"mean": list(scale.mean), "std": list(scale.std), "bgr": scale.bgr}
        return arrays, found, [each for each in said if each], {KEY: kept} if is_float else {}

    def _sizes(self, name: str, layout: Layout) -> tuple[tuple[int, int | None] | None, Any]:
        """How images are resized, and what is cut out of them."""
        given = self.options
        size = None if given.image_size is None else parse_size(given.image_size, "--image-size")
        crop = None if given.image_crop is None else parse_size(given.image_crop, "--image-crop")
        height, width = layout.sizes
        cut = None if crop is None else (crop[0], crop[1] or crop[0])
        if cut is None and height is not None and width is not None:
            cut = height, width
        if cut is None and size is not None:
            cut = size[0], size[1] or size[0]
        if cut is None:
            raise UsageError(
                f"{self.source}: input {name!r} takes images of any size: give --image-size HxW"
            )
        return size or (cut if crop is None else None), cut

    def described(self) -> dict[str, Any]:
        """The fingerprint of the examples' numbers."""
        given = self.options
        return {
            "files": self.found.digest, "size": given.image_size, "crop": given.image_crop,
            "mean": given.image_mean, "std": given.image_std, "flip": given.flip,
            "random_crop": given.random_crop,
        }  # fmt: skip


def _resized(found: tuple[int, int], size: tuple[int, int | None]) -> tuple[int, int]:
    """The width and height after resizing: as given, or the shorter edge as given."""
    height, width = size
    if width is not None:
        return width, height
    shorter = min(found)
    return max(found[0] * height // shorter, 1), max(found[1] * height // shorter, 1)


def _size_of(path: Path) -> tuple[int, int]:
    """The width and height of an image that can be taken, by its header."""
    from PIL import Image

    with opened(path) as file, _named(path), Image.open(file, formats=_FORMATS) as image:
        if image.mode.startswith(("I", "F")):
            raise UsageError(f"{path}: has more than 8 bits a channel: save it with 8")
        width, height = image.size
        return width, height


class _named:  # noqa: N801 - a context, in place of a function that yields
    """Pillow's errors of a file as one line with its name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, UsageError):
            said = " ".join(str(error).split())
            raise UsageError(f"{self._path}: cannot be read as an image: {said}") from error
