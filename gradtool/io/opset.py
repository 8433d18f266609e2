"""Raising the opset of an old model, with onnx's converter in a child process."""

from __future__ import annotations

import subprocess

import onnx
import onnx.version_converter
import onnx_ir as ir

from gradtool import child
from gradtool.errors import ModelError
from gradtool.io import adapters, walk

MINIMUM = 18
MOST = 26  # the highest of onnxruntime 1.31: nothing is raised beyond it unasked
_HEAVY = 1024
_SINGLE_FIELDS = (
    "ir_version",
    "producer_name",
    "producer_version",
    "domain",
    "model_version",
    "doc_string",
)
_SECONDS = 120
_CONVERT = """
import sys, onnx
from onnx import version_converter
model = onnx.load_from_string(sys.stdin.buffer.read())
try:
    model = version_converter.convert_version(model, int(sys.argv[1]))
except Exception as error:
    sys.exit("".join(str(error).split("\\n")[:1]))
sys.stdout.buffer.write(model.SerializeToString())
"""


def settle(model: onnx.ModelProto, before: int, version: int) -> onnx.ModelProto:
    """A model of opset `before` at opset `version`, in forms of operators known to rules.

    Raises:
        ModelError: there is no way from its opset to that one.
    """
    if version > before:
        return raise_to(model, version)
    adapters.prepare(model, before)
    return model


def raise_to(model: onnx.ModelProto, version: int, *, isolated: bool = True) -> onnx.ModelProto:
    """The same model at a higher opset of the standard domain.

    Weights take no part: the converter sees their types only. Its native code can die on unexpected
    input, so it runs in a child process, unless the model is trusted.

    Raises:
        ModelError: the converter has no way from the one opset to the other.
    """
    from gradtool.io import legacy

    newest = onnx.defs.onnx_opset_version()
    if version > newest:
        raise ModelError(f"opset {version} is newer than {newest}, the newest that onnx knows")
    if model.functions:
        from gradtool.io.functions import inline_functions

        inlined = ir.serde.deserialize_model(model)
        inline_functions(inlined, lambda domain, name: False)  # noqa: ARG005
        model = ir.serde.serialize_model(inlined)
    before = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    skeleton, weights = _strip(model)
    legacy.repair(skeleton, before)
    patches = adapters.prepare(skeleton, before)
    raised = (_convert if isolated else _convert_here)(skeleton, before, version)
    adapters.finish(raised, patches)
    _restore(raised, model, weights)
    needed = onnx.helper.find_min_ir_version_for(list(raised.opset_import), ignore_unknown=True)
    raised.ir_version = max(model.ir_version, needed)
    return raised


def _strip(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """The model with its heavy initializers turned into inputs, and those initializers."""
    inputs = {value.name for value in model.graph.input}
    heavy = [t for t in model.graph.initializer if _is_heavy(t)]
    names = {tensor.name for tensor in heavy}
    light = [t for t in model.graph.initializer if t.name not in names]
    skeleton = onnx.ModelProto()
    skeleton.CopyFrom(_without_initializers(model))
    skeleton.graph.initializer.extend(light)
    skeleton.ir_version = max(4, model.ir_version)
    for tensor in heavy:
        if tensor.name not in inputs:
            info = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            skeleton.graph.input.append(info)
    return skeleton, heavy


def _is_heavy(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.ByteSize() > _HEAVY


def _without_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    shell = onnx.ModelProto()
    graph = onnx.GraphProto()
    for field, value in model.graph.ListFields():
        if field.name in ("node", "input", "output"):
            getattr(graph, field.name).extend(value)
        elif field.name in ("name", "doc_string"):
            setattr(graph, field.name, value)
    for field, value in model.ListFields():
        if field.name == "graph":
            shell.graph.CopyFrom(graph)
        elif field.name in ("opset_import", "metadata_props"):
            getattr(shell, field.name).extend(value)
        elif field.name in _SINGLE_FIELDS:
            setattr(shell, field.name, value)
    return shell


def _convert(skeleton: onnx.ModelProto, before: int, version: int) -> onnx.ModelProto:
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and script
            child.python("-c", _CONVERT, str(version)),
            env=child.environment(),
            input=skeleton.SerializeToString(),
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"raising opset {before} to {version} took more than {_SECONDS} s"
        ) from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").split("\n")
        reason = next((line for line in reversed(lines) if line.strip()), "the converter died")
        raise _impossible(before, version, reason)
    raised = onnx.ModelProto()
    raised.ParseFromString(done.stdout)
    return raised


def _convert_here(skeleton: onnx.ModelProto, before: int, version: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(skeleton, version)
    except RuntimeError as error:
        raise _impossible(before, version, str(error).split("\n", maxsplit=1)[0]) from error


def _impossible(before: int, version: int, reason: str) -> ModelError:
    return ModelError(
        f"opset {before} cannot be raised to {version}: {reason[:200]}; export the model "
        f"at opset {MINIMUM} or later"
    )


def _restore(
    raised: onnx.ModelProto, model: onnx.ModelProto, weights: list[onnx.TensorProto]
) -> None:
    """Restore the heavy initializers, an exporter's notes, inputs and outputs.

    The converter's shapes are forgotten: Scan's lose some, and it counts windows of pools that
    begin behind the image.
    """
    raised.graph.initializer.extend(weights)
    del raised.graph.input[:]
    raised.graph.input.extend(model.graph.input)
    del raised.graph.output[:]
    raised.graph.output.extend(model.graph.output)
    del raised.metadata_props[:]
    raised.metadata_props.extend(model.metadata_props)
    for graph in walk.graphs(raised.graph):
        del graph.value_info[:]
    _note(raised.graph, model.graph)


def _note(raised: onnx.GraphProto, given: onnx.GraphProto) -> None:
    """Restore an exporter's notes on values and nodes, forgotten by the converter."""
    made = {tensor.name for tensor in raised.initializer}
    made.update(name for node in raised.node for name in node.output)
    raised.value_info.extend(v for v in given.value_info if v.metadata_props and v.name in made)
    makers = {node.output[0]: node for node in given.node if node.output}
    for node in raised.node:
        maker = makers.get(node.output[0]) if node.output else None
        if maker is None:
            continue
        node.metadata_props.extend(maker.metadata_props)
        bodies = {attribute.name: attribute.g for attribute in maker.attribute}
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH and attribute.name in bodies:
                _note(attribute.g, bodies[attribute.name])
