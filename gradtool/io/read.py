"""Bytes of a model file to a protobuf message: no meaning is checked here."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gradtool.errors import ModelError
from gradtool.graph.limits import DEFAULT, Limits
from gradtool.io import external, lfs

TEXT_SUFFIX = ".onnxtxt"
_DEEPEST_TEXT = 64


def from_file(path: Path, limits: Limits = DEFAULT) -> onnx.ModelProto:
    """The message in a file: protobuf, or ONNX text where the suffix says so.

    Raises:
        ModelError: it cannot be read, is too large, or is something else.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelError(
                f"{path}: is a folder without genai_config.json; name the model file in it"
            )
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{path}: is not a regular file; use - to read standard input")
        if status.st_size > limits.file_bytes:
            raise ModelError(
                f"{path}: {status.st_size} bytes; a protobuf holds at most {limits.file_bytes}: "
                "store the weights as external data"
            )
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if lfs.is_pointer(data):
        raise ModelError(f"{path}: is a Git LFS pointer to the model: run git lfs pull")
    if path.suffix == TEXT_SUFFIX:
        return from_text(data, str(path))
    return from_bytes(data, str(path))


@dataclass(frozen=True)
class Held:
    """A model in memory: the bytes of a file, a message, or an `ir.Model`.

    `path` is the file that it was made of, where its tensors may lie beside that.
    """

    model: bytes | onnx.ModelProto | ir.Model
    path: Path | None = None


Source = Path | bytes | onnx.ModelProto | ir.Model | Held


def message(source: Source) -> onnx.ModelProto:
    """A mutable message of a model, wherever it is.

    Raises:
        ModelError: the file is gone, or damaged.
    """
    if isinstance(source, Path):
        return from_file(source)
    return _message(source.model if isinstance(source, Held) else source)


def from_anywhere(
    source: str | os.PathLike[str] | Held, limits: Limits = DEFAULT
) -> tuple[Path | None, onnx.ModelProto, str]:
    """The path of a model, its mutable message, and its name in error messages.

    Of a folder of onnxruntime-genai it is the decoder.
    """
    if isinstance(source, Held):
        return source.path, _message(source.model), "the model given"
    if source == "-":
        return None, from_stdin(limits), "standard input"
    path = existing_path(source)
    if path.is_dir():
        from gradtool.io import genai

        path = genai.decoder(path) if genai.is_folder(path) else path
    return path, from_file(path, limits), str(path)


def _message(model: bytes | onnx.ModelProto | ir.Model) -> onnx.ModelProto:
    if isinstance(model, bytes):
        return from_bytes(model, "the model given")
    if isinstance(model, ir.Model):
        copy = model.clone()
        for graph in copy.graphs():
            for value in graph.initializers.values():
                if isinstance(value.const_value, ir.ExternalTensor):
                    held = external.of_program(value.const_value)
                    value.const_value = ir.Tensor(held.read(), name=value.name)
        proto: onnx.ModelProto = ir.serde.serialize_model(copy)
        return proto
    message = onnx.ModelProto()
    message.CopyFrom(model)
    return message


def from_stdin(limits: Limits = DEFAULT) -> onnx.ModelProto:
    """The message on standard input."""
    data = sys.stdin.buffer.read(limits.file_bytes + 1)
    if len(data) > limits.file_bytes:
        raise ModelError(
            f"standard input: more than {limits.file_bytes} bytes, which no protobuf can hold"
        )
    return from_bytes(data, "standard input")


def from_bytes(data: bytes, what: str) -> onnx.ModelProto:
    """Decode a protobuf. `what` begins the error message."""
    if not data:
        raise ModelError(f"{what}: is empty")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            f"{what}: is not an ONNX model, or is truncated, or is nested too deeply"
        ) from error
    return model


def from_text(data: bytes, what: str) -> onnx.ModelProto:
    """Parse ONNX text syntax."""
    from onnx import parser

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{what}: is not UTF-8 text") from error
    if _depth(text) > _DEEPEST_TEXT:
        raise ModelError(f"{what}: brackets are nested more than {_DEEPEST_TEXT} deep")
    try:
        return parser.parse_model(text)
    except (parser.ParseError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"{what}: is not ONNX text: {reason}") from error


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        if character in "([{<":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}>":
            depth -= 1
    return deepest


def existing_path(source: str | os.PathLike[str]) -> Path:
    """The path as given, made absolute. Raises ModelError where it cannot be one."""
    text = os.fspath(source)
    if "\0" in text or not text:
        raise ModelError(f"{text!r}: is not a path")
    return Path(text).absolute()
