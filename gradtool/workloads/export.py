"""A graph written as a model of standard operators."""
# ruff: noqa: RUF009 - `keyword` makes a field

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.arguments import takes
from gradtool.emit.builder import Builder
from gradtool.errors import InvalidResult
from gradtool.graph import walk
from gradtool.graph.attributes import arguments
from gradtool.graph.defaults import write_defaults
from gradtool.graph.error_context import blamed
from gradtool.graph.families import PREVIEW
from gradtool.graph.metadata import CALL, CALLEE
from gradtool.graph.names import label
from gradtool.graph.predicates import is_used
from gradtool.graph.specs import Spec, spec_of
from gradtool.graph.stages import is_clone
from gradtool.ops import kernels
from gradtool.ops.composites.calls import inline, inputs_of_call
from gradtool.ops.composites.dead_outputs import drop_unread
from gradtool.ops.shared.call import results
from gradtool.passes.plain_casts import plain_casts
from gradtool.passes.refuse_labels import refuse_labels
from gradtool.workloads import ort_options
from gradtool.workloads.options import documented, keyword
from gradtool.workloads.rewritten import Graph, model_of

if TYPE_CHECKING:
    from gradtool.passes.split import Split

MOST_BYTES = 2**24  # of the values of a node that is tried


@dataclass(frozen=True, kw_only=True)
class SaveOptions:
    """The options of `save`, whose docstring describes each."""

    force: bool = keyword(False, "replace a file that is there.")
    external_data: Literal["auto", "always", "never"] = keyword(
        "auto", "whether weights lie in a file beside it; `auto`: where they are too large."
    )
    functions: bool = keyword(False, "composites are calls of local functions, not their bodies.")
    barrier: bool = keyword(
        False, "other runtimes compute again what is recomputed whatever their options; else the "
        "file's metadata holds those that stock onnxruntime needs.")  # fmt: skip
    portable: bool = keyword(
        False, "places of maxima are computed by plain operators, for runtimes whose MaxPool has "
        "one output.")  # fmt: skip
    marks: bool = keyword(
        True, "say which nodes are the body of which composite; without, the file is smaller, and "
        "gradtool itself runs it node by node.")  # fmt: skip
    defaults: bool = keyword(
        True, "the file holds those of its inputs; onnxruntime's build for the web takes nothing "
        "for what has one.")  # fmt: skip
    stock: bool = keyword(
        False, "check by onnxruntime as well where it is installed, as the command line does."
    )
    say: Callable[[str], object] | None = keyword(
        None, "is told of what a `barrier` does not reach."
    )
    own: bool = keyword(False, "the graph is of no more use to the caller: no copy of it is made.")


@takes(SaveOptions, documented(SaveOptions))
def save(  # noqa: D417 - by `takes`
    graph: Graph, path: str | os.PathLike[str], options: SaveOptions
) -> tuple[Path, int]:
    """Write a graph in standard operators, whole or not at all; returns path and bytes.

    What is written was checked by ONNX's checker.

    Args:
        graph: a training graph, what `mirror` or `recompute` returned, or a model; left as it is.
        path: the file.

    Raises:
        UsageError: the output exists and `force` is not given, or cannot be written.
        InvalidResult: the graph is not valid, and was not written.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx"))
        path, size = gt.save(training, "cnn.grad.onnx")  # size in bytes
    """
    (written,) = _written([(model_of(graph), path)], options)
    return written


@takes(SaveOptions, {})
def save_split(
    halves: Split, paths: Sequence[str | os.PathLike[str]], options: SaveOptions
) -> list[tuple[Path, int]]:
    """Write the two halves of a step, never a new one beside an old one; as `save` does.

    Raises:
        UsageError: an output exists and `force` is not given, or cannot be written.
        InvalidResult: a half is not valid, and neither was written.
    """
    models = zip((halves.forward, halves.backward), paths, strict=True)
    return _written(list(models), options)


def _written(
    models: Sequence[tuple[ir.Model, str | os.PathLike[str]]], options: SaveOptions
) -> list[tuple[Path, int]]:
    writing = io.WriteOptions(
        force=options.force, external_data=options.external_data, own=options.own,
        stock=options.stock, say=options.say, finish=partial(_finish, options=options),
    )  # fmt: skip
    try:
        return io.save_together(models, writing)
    except InvalidResult:  # of a source that no runtime computes it is no defect of ours
        require_fit(models[0][0])
        raise


def _finish(model: ir.Model, options: SaveOptions) -> None:
    """Turn a graph into one of standard operators, in place, on the copy that is written."""
    before = set(_unread(model))
    if PREVIEW in walk.domains(model.graph):
        from gradtool.passes.lower_updates import lower_updates

        lower_updates(Builder(model))
    refuse_labels(model)
    if options.portable:
        from gradtool.passes.portable import portable as make_portable

        make_portable(model, Builder(model))
    if options.functions:
        from gradtool.passes.local_functions import localise

        localise(model)
    else:
        in_pieces = options.barrier and not options.portable
        inline(model, in_pieces=in_pieces and any(map(is_clone, model.graph)))
    drop_unread(model)
    plain_casts(model)
    if options.defaults:
        write_defaults(model)
    if options.barrier:
        from gradtool.passes.ort_allocator.barrier import barrier as set_barriers
        from gradtool.passes.ort_allocator.hide_shapes import open_sizes

        if set_barriers(model, say=options.say):
            open_sizes(model)
    if not options.marks:
        _unmark(model)
    unread = [name for name in _unread(model) if name not in before]
    for name in set(unread) - _described(model) if unread else ():
        del model.graph.initializers[name]
    ort_options.mark(model)


def _described(model: ir.Model) -> set[str]:
    """Names that bodies record of the call they come from."""
    return {name for node in walk.nodes(model.graph) for name in inputs_of_call(node)}


def _unmark(model: ir.Model) -> None:
    """Let no node say which composite it is of the body of."""
    for node in walk.nodes(model.graph):
        for key in (CALL, CALLEE):
            node.metadata_props.pop(key, None)


def _unread(model: ir.Model) -> list[str]:
    """The unread initializers, a warning of many runtimes."""
    found = model.graph.initializers.items()
    return [name for name, v in found if not is_used(v) and not v.is_graph_input()]


def require_fit(model: ir.Model) -> None:
    """Try every small node of forward on zeros.

    ONNX's checker lets misfits pass that no runtime computes, and refuses what is made of them.

    Raises:
        NodeFailed: naming the first node whose kernel fails.
    """
    for node in model.graph:
        version = model.graph.opset_imports.get(node.domain, 0)
        kernel = kernels.find(node.domain, node.op_type, version)
        specs = [None if v is None else spec_of(v) for v in node.inputs]
        out = [spec_of(v) for v in node.outputs]
        given = [None if v is None else ir.convenience.get_const_tensor(v) for v in node.inputs]
        known = all(v is None or s is not None for v, s in zip(node.inputs, specs, strict=True))
        if kernel is None or not known or None in out or _bytes([*specs, *out]) > MOST_BYTES:
            continue
        arrays = [
            None if s is None else np.zeros(s.shape, s.dtype) if t is None else t.numpy()
            for s, t in zip(specs, given, strict=True)
        ]
        with blamed(partial(label, node), "its kernel"), np.errstate(all="ignore"):
            results(np, kernel, arrays, out, arguments(node))


def _bytes(specs: list[Spec | None]) -> int:
    return sum(spec.bytes for spec in specs if spec is not None)
