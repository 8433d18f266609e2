"""Changes by exporters to a model that is to be trained, told by their traces.

They write models for inference: BatchNormalization is folded into the layer before, Dropout left
out, and weights are laid out as an operator reads them, under names of the exporter's own.

Source: PyTorch 2.13 (`torch/onnx/_internal/exporter`, and TorchScript's `peephole` and
`constant_fold` passes), tf2onnx 1.17 on TensorFlow 2.21 (grappler's `MulConvPushDown`).
"""

from __future__ import annotations

import re

import onnx_ir as ir

from gradtool.graph.predicates import is_float, is_scalar
from gradtool.losses.output_heads import PRODUCTS
from gradtool.passes.provenance import operation, parameters_of
from gradtool.text.words import count, some

REMEDY = (
    "export with optimize=False (torch.onnx.export(..., dynamo=True, optimize=False); with "
    "dynamo=False: training=TrainingMode.TRAINING)"
)
KERAS_REMEDY = "convert model(x, training=True) with Dropout at rate 0, as docs/exporting.md shows"
RENAMED = (
    "--wrt, --no-grad and --lora-target go by these names; torch.onnx.export(..., dynamo=True) "
    "keeps those of the model"
)
APART = "each is trained by itself: torch.onnx.export(..., optimize=False) keeps them one"
DROPOUT = "; Dropout, if there was any, was left out as well"

_TORCHSCRIPT = re.compile(r"(?:onnx::)(\w+)_\d+")  # by its first reader
_FOLDED = ("Conv", "ConvTranspose")  # TorchScript renames their weights for no other reason
_TRANSPOSED = ("MatMul", "Gemm")  # readers of the weight of a Linear layer
_KERAS = re.compile(r".*/(?:merged_input|batchnorm/\w+)(?::\d+)?")
_MATRIX = 2  # axes


def folded(graph: ir.Graph) -> list[str]:
    """A warning with the layers into which a BatchNormalization was folded."""
    said = []
    for remedy, holds in ((REMEDY, _of_pytorch), (KERAS_REMEDY, _of_keras)):
        found = [node.name or node.op_type for node in graph if holds(node)]
        if found:
            where = some(found, most=6)
            gone = f"BatchNormalization was folded into {where} by the exporter, and has no"
            said.append(f"{gone} parameters or statistics of its own{_dropout(graph)}: {remedy}")
    return said


def renamed(graph: ir.Graph) -> list[str]:
    """A warning with the weights transposed by TorchScript under names of its own."""
    found = [v for v in graph.initializers.values() if _is_renamed(v)]
    if not found:
        return []
    listed = some((f"{v.name} ({_reader(v)})" for v in found), most=3)
    weights = count(len(found), "weight")
    return [f"{weights} transposed by TorchScript under names of its own: {listed}: {RENAMED}"]


def untied(graph: ir.Graph) -> list[str]:
    """A warning for each parameter that the exporter folded into several."""
    made: dict[str, list[str]] = {}
    for value in graph.initializers.values():
        if is_float(value) and value.uses():
            for origin in parameters_of(value):
                made.setdefault(origin, []).append(value.name or "")
    for origin, names in made.items():
        if origin in graph.initializers and graph.initializers[origin].uses():
            names.append(origin)
    return [
        f"{some(names, most=4)} were one parameter, {origin}, until the exporter folded it; {APART}"
        for origin, names in made.items()
        if len(names) > 1
    ]


def _dropout(graph: ir.Graph) -> str:
    return "" if any(node.op_type == "Dropout" for node in graph) else DROPOUT


def _of_pytorch(node: ir.Node) -> bool:
    if node.op_type not in PRODUCTS:
        return False
    weight = node.inputs[1]
    name = (weight.name or "") if weight is not None and weight.is_initializer() else ""
    match = _TORCHSCRIPT.fullmatch(name)
    return "batch_norm" in operation(node) or (match is not None and match[1] in _FOLDED)


def _of_keras(node: ir.Node) -> bool:
    """Whether a node reads grappler's product of a weight and a gain, or of statistics."""
    held = (v.name or "" for v in node.inputs if v is not None and v.is_initializer())
    return any(map(_KERAS.fullmatch, held))


def _is_renamed(value: ir.Value) -> bool:
    """Whether a matrix read by a product has a name of TorchScript's."""
    match = _TORCHSCRIPT.fullmatch(value.name or "")
    if match is None or match[1] not in _TRANSPOSED or not is_float(value):
        return False
    reads = any(use.node.op_type in _TRANSPOSED for use in value.uses())
    return reads and len(value.shape or ()) == _MATRIX and not is_scalar(value)


def _reader(value: ir.Value) -> str:
    """The layer that reads a weight, by TorchScript's name: `/layer/q` for `/layer/q/MatMul`."""
    names = [use.node.name or use.node.op_type for use in value.uses()]
    name = names[0] if names else "nobody"
    return name.rpartition("/")[0] or name
