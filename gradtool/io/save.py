"""Writing a model: the same bytes every time, and all of them or none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir

from gradtool import shapes
from gradtool.errors import UsageError
from gradtool.io import atomic, layout
from gradtool.io.read import TEXT_SUFFIX

STDOUT = "-"


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    external_data: layout.Where = "auto",
    finish: Callable[[ir.Model], object] = lambda _: None,
    own: bool = False,
) -> tuple[Path, int]:
    """Write a model; return its path and the bytes written, those of its data file included.

    `-` is standard output; the suffix `.onnxtxt` writes ONNX text. Tensors whose bytes lie in
    the same folder already are referred to, not copied; tensors whose data is absent keep their
    reference. The model given is not changed, unless it is our `own`: `finish` is called on the
    copy that is written.

    Raises:
        UsageError: the output exists and `force` is not given, or it cannot be written.
    """
    copy = model if own else model.clone()
    finish(copy)
    shapes.strip(copy)
    if os.fspath(path) == STDOUT:
        return Path(STDOUT), _to_stdout(copy, external_data)
    target = atomic.target(path, force=force)
    data = layout.arrange(copy, target, external_data)
    content = _text(copy) if target.suffix == TEXT_SUFFIX else _bytes(copy)
    outputs = [atomic.Output(target, lambda file: file.write(content))]
    if data.tensors:
        atomic.target(data.path, force=force)
        outputs.insert(0, atomic.Output(data.path, data.write))
    atomic.write(outputs)
    return Path(path), len(content) + data.size


def require_stdout(external_data: layout.Where) -> None:
    """Refuse standard output where no model can go.

    Raises:
        UsageError: it is a terminal, or weights shall lie in a file beside it.
    """
    if external_data == "always":
        raise UsageError("--external-data always needs a file to write beside, not -")
    if sys.stdout.isatty():
        raise UsageError("standard output is a terminal: name a file with -o, or redirect")


def _to_stdout(model: ir.Model, external_data: layout.Where) -> int:
    require_stdout(external_data)
    layout.inline(model)
    content = _bytes(model)
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return len(content)


def _bytes(model: ir.Model) -> bytes:
    try:
        content: bytes = ir.serde.serialize_model(model).SerializeToString(deterministic=True)
    except ValueError as error:
        raise UsageError(
            f"the model is too large for one protobuf ({error}); use --external-data auto"
        ) from error
    return content


def _text(model: ir.Model) -> bytes:
    return onnx.printer.to_text(ir.serde.serialize_model(model)).encode()
