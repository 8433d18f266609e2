"""Folders of recordings: one channel of float32, cut or filled up to a length."""

from __future__ import annotations

import wave
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gradtool.errors import UsageError
from gradtool.graph.metadata import notes
from gradtool.io.stored import opened
from gradtool.text.extras import install
from gradtool.training.data_options import DataOptions
from gradtool.training.decoding import Array, Decoded
from gradtool.training.input_spec import InputSpec
from gradtool.training.media import LABEL, ClassFolder, Layout, matched, require_classes

WAV = ".wav"
SUFFIXES = (WAV, ".flac", ".ogg", ".mp3", ".aiff")
AUDIO = "audio"
KEY = "gradtool.audio"  # of a trained file: the rate of its recordings
_LONGEST = 1 << 28  # samples of an example


@dataclass(frozen=True)
class Recordings:
    """The recordings of a folder, of one rate in samples a second, each of `length` samples."""

    found: ClassFolder
    layout: Layout
    rate: int
    length: int

    def one(self, example: int, epoch: int | None) -> Array:
        """An example [T], [1, T] or [T, 1], as it is in every epoch.

        Raises:
            UsageError: the file is no recording, or of another rate.
        """
        del epoch
        made = np.zeros(self.length, np.float32)
        rate, samples = _read(self.found.files[example], self.length)
        _require_rate(self.found.files[example], rate, self.rate)
        made[: len(samples)] = samples
        return made.reshape(self.layout.laid(1, (self.length,))) if self.layout.channels else made


@dataclass(frozen=True)
class AudioFolder:
    """A folder of recordings by class, before it is known what a model takes."""

    source: str
    found: ClassFolder
    options: DataOptions
    rate: int

    @classmethod
    def of(cls, folder: ClassFolder, options: DataOptions, seed: int) -> AudioFolder:
        """A folder whose recordings can be read and have one rate, by what their headers say.

        Raises:
            UsageError: naming the file that has not, or what it takes to read it.
        """
        del seed
        rates = [_read(path, 0)[0] for path in folder.files]
        for path, rate in zip(folder.files, rates, strict=True):
            _require_rate(path, rate, rates[0])
        return cls(str(folder.folder), folder, options, rates[0])

    def arrays(
        self, takes: InputSpec, names: Mapping[str, str]
    ) -> tuple[dict[str, Any], dict[str, str], list[str], dict[str, Any]]:
        """Arrays, their names by input, messages, and metadata for a trained file.

        Raises:
            UsageError: no input takes recordings, nothing tells their length, or the model was
                trained on another rate.
        """
        name, found = matched(takes, names, self.source, AUDIO, (2, 3))
        shape = takes.inputs[name].shape
        layout = Layout.of(takes, name, (1,))
        if shape is not None and len(shape) == 2:
            last = shape[1]
            layout = Layout(1, None, (last if isinstance(last, int) else None,))
        elif layout.channels not in (1, None):
            raise UsageError(f"{self.source}: input {name!r} takes {layout.channels} channels, "
                             "recordings are mixed down to one")  # fmt: skip
        noted = notes(takes.model).get(KEY, "")
        if noted.isdecimal() and int(noted) != self.rate:
            raise UsageError(f"{self.source}: has {self.rate} samples a second, the model was "
                             f"trained on {noted}: resample the recordings")  # fmt: skip
        recordings = Recordings(self.found, layout, self.rate, self._length(name, layout))
        example = layout.laid(1, (recordings.length,)) if layout.channels else (recordings.length,)
        arrays = {
            AUDIO: Decoded(
                np.dtype(np.float32), (len(self.found.files), *example), recordings.one,
                self.options.workers,
            ),
            LABEL: self.found.labels,
        }  # fmt: skip
        said = require_classes(takes, self.source, found, len(self.found.classes))
        return arrays, found, [said] if said else [], {KEY: self.rate}

    def _length(self, name: str, layout: Layout) -> int:
        (fixed,) = layout.sizes
        given = self.options.seconds
        length = fixed if given is None else round(given * self.rate)
        if length is None:
            raise UsageError(f"{self.source}: input {name!r} takes any length: give --seconds S")
        if fixed not in (None, length):
            raise UsageError(
                f"{self.source}: --seconds {given:g} are {length} samples, the model takes {fixed}"
            )
        if not 0 < length <= _LONGEST:
            raise UsageError(f"{self.source}: --seconds {given:g}: {length} samples are no length")
        return length

    def described(self) -> dict[str, Any]:
        """The fingerprint of the examples' numbers."""
        return {"files": self.found.digest, "rate": self.rate, "seconds": self.options.seconds}


def _require_rate(path: Path, rate: int, wanted: int) -> None:
    if rate != wanted:
        raise UsageError(
            f"{path}: has {rate} samples a second, other recordings {wanted}: resample it"
        )


def _read(path: Path, most: int) -> tuple[int, Array]:
    """The rate of a recording, and up to so many samples of it, the mean of its channels.

    Raises:
        UsageError: it cannot be read.
    """
    with opened(path) as file:
        if path.suffix.lower() == WAV:
            try:
                return _of_wave(file, most)
            except (wave.Error, EOFError) as error:
                file.seek(0)
                why = " ".join(str(error).split()) or "it ends too early"
        else:
            why = "the standard library reads wav alone"
        try:
            import soundfile
        except ImportError as error:
            what = f"{path}: cannot be read ({why}); soundfile may: {install('audio')}"
            raise UsageError(what) from error
        try:
            with soundfile.SoundFile(file) as sound:
                samples = sound.read(most, dtype="float32", always_2d=True)
                return int(sound.samplerate), samples.mean(1, dtype=np.float32)
        except (RuntimeError, ValueError, TypeError) as error:
            said = " ".join(str(error).split()).rpartition(": ")[2]
            raise UsageError(f"{path}: cannot be read as a recording: {said}") from error


def _of_wave(file: BinaryIO, most: int) -> tuple[int, Array]:
    with wave.open(file, "rb") as sound:
        width, channels = sound.getsampwidth(), sound.getnchannels()
        raw = sound.readframes(min(most, sound.getnframes()))
        rate = sound.getframerate()
    if rate < 1 or channels < 1 or width not in (1, 2, 3, 4):
        raise wave.Error("no rate, or samples of a width that wav has not")
    raw = raw[: len(raw) // (width * channels) * width * channels]
    if width == 1:
        wide = np.frombuffer(raw, np.uint8).astype(np.float64) - 128
    else:
        found = np.frombuffer(raw, np.uint8).reshape(-1, width)
        filled = np.zeros((len(found), 4), np.uint8)  # the highest bytes of 32 bits
        filled[:, 4 - width :] = found
        wide = filled.view("<i4").reshape(-1) / float(1 << (32 - 8 * width))
    wide = wide / float(1 << (8 * width - 1))
    return rate, wide.reshape(-1, channels).mean(1).astype(np.float32)
