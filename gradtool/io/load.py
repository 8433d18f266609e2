"""A model file to an `ir.Model` for every later room to trust: checked, typed and shaped."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx import defs

from gradtool.arguments import takes
from gradtool.errors import ModelError, UsageError
from gradtool.graph import branches
from gradtool.graph.limits import DEFAULT, Limits
from gradtool.graph.metadata import SOURCE
from gradtool.graph.names import label
from gradtool.graph.training_info import TrainingInfo
from gradtool.graph.walk import nodes
from gradtool.io import (
    declared,
    equations,
    external,
    file_tensors,
    lift_constants,
    read,
    rules,
    structure,
    walk,
)
from gradtool.io import dims as dimensions
from gradtool.io import opset as opsets
from gradtool.io.solving import Known
from gradtool.io.walk import STANDARD
from gradtool.shapes import infer
from gradtool.shapes import limits as shape_limits

# The library says on the log what is an error here, or of no interest.
_SILENT = logging.NullHandler()

KeepFunction = Callable[[str, str], bool]
Rewrite = Callable[[ir.Model], None]


def _keep_none(domain: str, name: str) -> bool:  # noqa: ARG001 - the signature of a predicate
    return False


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The options of loading a model: its sizes and values, its opset, and rewrites meanwhile."""

    dims: Mapping[str, int] | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    batch: int | None = None
    values: Mapping[str, object] | None = None
    opset: int | None = None
    keep_function: KeepFunction = _keep_none
    rewrite: Rewrite | None = None
    limits: Limits = DEFAULT


@takes(LoadOptions, {})
def load(source: str | os.PathLike[str] | read.Held, options: LoadOptions) -> ir.Model:
    """Read, check and complete a model; `-` is standard input, and `read.Held` is in memory.

    Every value has the type and shape that inference finds, whatever the file declares. The
    opset is at least `opsets.MINIMUM`. Local functions are inlined, except those `keep_function`
    (domain, name) keeps. Inputs with `values` become constants (see `constants.settle`). `rewrite`
    sees the model before sizes are given to its symbols.
    `model.meta` has `gradtool.path`, the real path or None, `gradtool.folder`, that of the path as
    it was given, `gradtool.left_aside`, a line for each
    operator that was, `gradtool.hints`, a line for each shape that holds no more, and, where the
    opset was raised, `gradtool.raised_from`.

    Raises:
        ModelError: the file is not a model that can be trusted, and why.
        UsageError: dims, shapes, batch or values do not fit the model.
    """
    limits, keep_function = options.limits, options.keep_function
    path, proto, where = read.from_anywhere(source, limits)
    streamed = proto.SerializeToString() if source == "-" else None
    folder = external.Folder(path)
    try:
        if proto.training_info:
            from gradtool.io.training_algorithm import to_step

            proto = to_step(proto)
        left_aside: tuple[str, ...] = ()
        if any(node.op_type == "ZipMap" for node in proto.graph.node):
            from gradtool.io.zipmap import leave_aside

            left_aside = leave_aside(proto.graph)
        hints = declared.open_sizes(proto)
        structure.check(proto, folder, limits)
        hints += declared.passed_on(proto)
        lift_constants.lift(proto, keep_function)
        version = structure.opset_version(proto)
        target = _target(version, options.opset)
        model = deserialize(opsets.settle(proto, version, target))
        TrainingInfo.of(model).require(model.graph)
        file_tensors.attach(model, folder.find)
        if model.functions:
            from gradtool.io.functions import inline_functions

            inline_functions(model, keep_function, limits)
        hints += _sized(model, options)
    except ModelError as error:
        raise type(error)(f"{where}: {error}") from error
    notes: dict[str, object] = {
        "path": None if path is None else path.resolve(), "left_aside": left_aside, "hints": hints,
        "folder": None if path is None else path.parent,
    }  # fmt: skip
    notes |= {"raised_from": version} if target > version else {}
    model.meta.update({f"gradtool.{name}": note for name, note in notes.items()})
    held: object = streamed
    if isinstance(source, read.Held):
        held = source if source.path else source.model
    model.meta.update({} if held is None else {SOURCE: held})
    return model


def _sized(model: ir.Model, options: LoadOptions) -> tuple[str, ...]:
    """Give a model the values and sizes of the options, infer the others, and return hints."""
    said = declared.collect(model)
    told: Sequence[Known] = ()
    if options.values:
        from gradtool.io.constants import settle

        with shape_limits.within(options.limits):
            told = settle(model, options.values)
    if options.rewrite is not None:
        options.rewrite(model)
    dimensions.bind(model, options.dims or {}, options.shapes or {}, options.batch, told)
    dimensions.check_count(model, options.limits)
    return _inferred(model, said, options.limits)


def _inferred(model: ir.Model, said: declared.Declared, limits: Limits) -> tuple[str, ...]:
    """Infer and check all shapes; a line for each that is declared and does not hold."""
    with shape_limits.within(limits):
        infer(model)
        hints = equations.settle(model)
    branches.take(model)
    hints += declared.check(model, said, limits)
    _check_types(model)
    rules.check(model, limits)
    return hints


def _target(version: int, opset: int | None) -> int:
    """The target opset of a model of a version.

    Raises:
        UsageError: another one is asked for, and it is too low.
    """
    if opset is not None and opset < max(version, opsets.MINIMUM):
        low = f"opset {opset}: the model has {version}, the gradient rules need"
        raise UsageError(f"{low} {opsets.MINIMUM}; opsets can only be raised")
    return max(version, opset or 0, opsets.MINIMUM)


def from_proto(proto: onnx.ModelProto) -> ir.Model:
    """A model in memory, with its opset raised and its functions inlined.

    It may hold more than files for training may; its types and shapes are not inferred yet.

    Raises:
        ModelError: it is not a valid model.
    """
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(" ".join(str(error).split())[:300]) from error
    version = structure.opset_version(proto)
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    if version < opsets.MINIMUM:
        copy = opsets.raise_to(copy, opsets.MINIMUM, isolated=False)
    model = deserialize(copy)
    if model.functions:
        from gradtool.io.functions import inline_functions

        inline_functions(model, _keep_none)
    return model


def _believe_tensors(proto: onnx.ModelProto) -> None:
    """Let initializers and inputs declare themselves, against any second declaration.

    An exporter's notes on an initializer stay.
    """
    for graph in walk.graphs(proto.graph):
        inputs = {value.name for value in graph.input}
        tensors = {tensor.name: tensor for tensor in graph.initializer}
        again = [value for value in graph.value_info if value.name in inputs]
        for value in again:
            graph.value_info.remove(value)
        for value in graph.value_info:
            tensor = tensors.get(value.name)
            if tensor is not None:
                kind = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                value.type.CopyFrom(kind)


def deserialize(proto: onnx.ModelProto) -> ir.Model:
    """The message as an `ir.Model`, its names for unknown sizes made safe to compute with."""
    dimensions.tidy(proto)
    _believe_tensors(proto)
    logging.getLogger(ir.__name__).addHandler(_SILENT)
    try:
        model = ir.serde.deserialize_model(proto)
    except Exception as error:
        reason = " ".join(str(error.__cause__ or error).split())[:200]
        raise ModelError(f"cannot be read: {reason}") from error
    if not any(domain in model.graph.opset_imports for domain in STANDARD):
        model.graph.opset_imports[""] = opsets.MOST
    return model


def _check_types(model: ir.Model) -> None:
    """Check every node whose operator ONNX defines. Types must have been inferred.

    Raises:
        ModelError: naming the node and the input.
    """
    imports = model.graph.opset_imports
    for node in nodes(model.graph):
        parameters = _parameters(node.op_type, node.domain, imports.get(node.domain, 0))
        if parameters:
            _check_node(node, parameters)


@dataclass(frozen=True)
class _Parameter:
    """An input of a schema: the type variable it belongs to, and the types that it takes."""

    variable: str
    types: frozenset[str]
    homogeneous: bool


@functools.cache
def _parameters(name: str, domain: str, version: int) -> tuple[_Parameter, ...]:
    """The inputs of an operator; a variadic one is the last. Empty where there is no schema."""
    try:
        schema = defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return ()
    return tuple(
        _Parameter(i.type_str, frozenset(i.types), i.is_homogeneous) for i in schema.inputs
    )


def _check_node(node: ir.Node, parameters: tuple[_Parameter, ...]) -> None:
    bound: dict[str, str] = {}
    for index, value in enumerate(node.inputs):
        kind = _type_name(value)
        if kind is None:
            continue
        parameter = parameters[min(index, len(parameters) - 1)]
        who = label(node)
        if parameter.types and kind not in parameter.types:
            raise ModelError(f"{who}: input {index} is a {kind}, which it does not take")
        if not parameter.homogeneous:
            continue
        if bound.setdefault(parameter.variable, kind) != kind:
            raise ModelError(
                f"{who}: input {index} is a {kind}, another one a {bound[parameter.variable]}"
            )


def _type_name(value: ir.Value | None) -> str | None:
    """The schemas' name of a tensor's type; None if it is none or unknown."""
    if value is None or not isinstance(value.type, ir.TensorType):
        return None
    return f"tensor({value.type.dtype.name.lower()})"
