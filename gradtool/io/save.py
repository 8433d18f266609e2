"""Writing a model: the same bytes every time, and all of them or none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from gradtool import shapes
from gradtool.arguments import takes
from gradtool.errors import UsageError
from gradtool.graph.metadata import SOURCE
from gradtool.io import atomic, data_file, layout, streamed_proto, valid
from gradtool.io.checkable import checkable
from gradtool.io.read import TEXT_SUFFIX

STDOUT = "-"


@dataclass(frozen=True)
class Written:
    """A model ready to be written: its outputs in order, and the files they leave unused."""

    path: Path
    outputs: tuple[atomic.Output, ...]
    size: int
    outdated: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of writing models.

    The model given is not changed, unless it is our `own`: `finish` is called on the copy that is
    written.  ONNX's checker must take it, and with `stock` onnxruntime too, where it is installed;
    `say` is told of refusals for reasons of their own.  Outputs `beside` it are written with it, or
    not at all.
    """

    force: bool = False
    external_data: layout.Where = "auto"
    finish: Callable[[ir.Model], object] = lambda _: None
    own: bool = False
    stock: bool = False
    say: valid.Say | None = None
    beside: Sequence[atomic.Output] = ()


@takes(WriteOptions, {})
def save(model: ir.Model, path: str | os.PathLike[str], options: WriteOptions) -> tuple[Path, int]:
    """Write a model; return its path and the bytes written, those of its data file included.

    `-` is standard output; the suffix `.onnxtxt` writes ONNX text.  Tensors whose bytes lie in the
    same folder already are referred to, not copied; tensors whose data is absent keep their
    reference.

    Raises:
        UsageError: the output exists and `force` is not given, or it cannot be written.
        InvalidResult: the model would not be valid.
    """
    (written,) = save_together([(model, path)], options)
    return written


def save_together(
    models: Sequence[tuple[ir.Model, str | os.PathLike[str]]], options: WriteOptions
) -> list[tuple[Path, int]]:
    """Write models of which one is of no use without the others, as `save` does."""
    ready = []
    for model, path in models:
        with _judge(model, options) as judge:
            copy = model if options.own else model.clone()
            options.finish(copy)
            shapes.strip(copy)
            if os.fspath(path) == STDOUT:
                ready.append(_to_stdout(copy, options, judge))
            else:
                ready.append(_to_file(copy, path, options, judge))
    appear(ready, options.beside)
    return [(each.path, each.size) for each in ready]


def check(model: ir.Model) -> None:
    """Check a model as it would be checked before it is written.

    Raises:
        UsageError: it has too many bytes for one protobuf.
        InvalidResult: it is not valid.
    """
    with _judge(model, WriteOptions()) as judge:
        _checked(model, judge)


def _judge(model: ir.Model, options: WriteOptions) -> valid.Judge:
    source = model.meta.get(SOURCE) or model.meta.get("gradtool.path")
    return valid.Judge(source, nodes=len(model.graph), stock=options.stock, say=options.say)


def appear(ready: Sequence[Written], beside: Sequence[atomic.Output] = ()) -> None:
    """Write models and outputs `beside` them, of no use without the first, and their data before.

    Raises:
        UsageError: the system refused, and why.
    """
    data = [output for each in ready for output in each.outputs[1:]]
    bound = [*(output for each in ready for output in each.outputs[:1]), *beside]
    atomic.write([*data, *bound], together=len(bound))
    data_file.remove_unused([path for each in ready for path in each.outdated])


def to_file(
    content: list[bytes], data: data_file.DataFile, path: str | os.PathLike[str], target: Path
) -> Written:
    """The outputs of a model, in pieces, and its data; `target` is the path, resolved."""
    if target.suffix == TEXT_SUFFIX:
        content = [onnx.printer.to_text(onnx.ModelProto.FromString(b"".join(content))).encode()]
    outputs = [atomic.Output(target, lambda file: file.writelines(content))]
    if data.tensors:
        outputs.append(atomic.Output(data.path, data.write))
    outdated = data_file.outdated(target, plain=bool(data.tensors))
    size = sum(map(len, content)) + data.size
    return Written(Path(path), tuple(outputs), size, tuple(outdated))


def to_stdout(content: list[bytes]) -> Written:
    """Write a model to standard output at once."""
    sys.stdout.buffer.writelines(content)
    sys.stdout.buffer.flush()
    return Written(Path(STDOUT), (), sum(map(len, content)))


def _to_file(
    model: ir.Model, path: str | os.PathLike[str], options: WriteOptions, judge: valid.Judge
) -> Written:
    target = atomic.target(path, force=options.force)
    data = layout.arrange(layout.slots_of(model), target, options.external_data)
    return to_file(_checked(model, judge), data, path, target)


def require_stdout(external_data: layout.Where) -> None:
    """Refuse standard output if no model can go there.

    Raises:
        UsageError: it is a terminal, or weights shall lie in a file beside it.
    """
    if external_data == "always":
        raise UsageError("--external-data always needs a file to write beside, not -")
    if sys.stdout.isatty():
        raise UsageError("standard output is a terminal: name a file with -o, or redirect")


def _to_stdout(model: ir.Model, options: WriteOptions, judge: valid.Judge) -> Written:
    require_stdout(options.external_data)
    layout.inline(layout.slots_of(model))
    return to_stdout(_checked(model, judge))


def _checked(model: ir.Model, judge: valid.Judge) -> list[bytes]:
    """The bytes of a model, in pieces, if it is valid."""
    written, checked = streamed_proto.Message(), checkable(model)
    try:
        before = streamed_proto.before_nodes(model)
        copy = onnx.GraphProto()
        copy.CopyFrom(before)
        checked.begin(copy)
        written.add(before)
        for run in streamed_proto.runs(model):
            streamed_proto.add_run(written, run)
            checked.add(run)
        last = streamed_proto.around(model)
        content = streamed_proto.model_pieces(
            written, onnx.ModelProto.FromString(last.SerializeToString())
        )
    except streamed_proto.TooLarge as error:
        raise UsageError(
            f"the model is too large for one protobuf ({error}); use --external-data auto"
        ) from error
    judge.check(checked, last)
    return content
