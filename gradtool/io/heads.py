"""A new head on a value of a model file, in place of its outputs: for transfer learning.

    [batch, features]        Gemm (x, weight [classes, features], bias)
    [..., features]          MatMul (x, weight [features, classes]) + bias
    [batch, channels, ...]   the same as the first, behind a global average of the images

Weight and bias are uniform within 1/√features, as `torch.nn.Linear` begins; the numbers depend on
the seed and the name of the tensor alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from gradtool.errors import UsageError
from gradtool.io import walk

OUTPUT, WEIGHT, BIAS = "logits", "head.weight", "head.bias"
LEAST_OPSET = 7  # from here on sums broadcast by themselves
NORM = "BatchNormalization"
STALE = ("gradtool.classes",)  # metadata about the former outputs


@dataclass(frozen=True)
class Head:
    """A head of so many `classes` on a `value` of these `features`, of an axis.

    `pooled`: the value is of images, whose places are averaged first.
    """

    value: str
    classes: int
    features: int
    rank: int
    dtype: ir.DataType
    pooled: bool = False
    seed: int = 0


@dataclass(frozen=True)
class Attached:
    """The names of new tensors and of the new output, and the outputs that are gone."""

    weight: str
    bias: str
    output: str
    dropped: tuple[str, ...]


def attach(model: onnx.ModelProto, head: Head) -> Attached:
    """Put a head on a value of a message, in place, and drop all that only its outputs read.

    Running statistics of norms in training form that are left stay outputs.

    Raises:
        UsageError: no node of the main graph writes the value, or the file is too old.
    """
    graph = model.graph
    version = next((o.version for o in model.opset_import if o.domain in walk.STANDARD), 0)
    if version < LEAST_OPSET:
        raise UsageError(f"--head: the file is of opset {version}, a head needs {LEAST_OPSET}")
    made = {name for node in graph.node for name in node.output}
    if head.value not in made.union(v.name for v in graph.input):
        raise UsageError(
            f"--head {head.value}: the value is inside of a function or a loop of the file; name "
            "one of its main graph"
        )
    before = list(graph.output)
    del graph.output[:]
    _prune(graph, {head.value})
    moved = {n for node in graph.node if node.op_type == NORM for n in node.output[1:]}
    taken = _names(graph)
    weight, bias, output = (_fresh(name, taken) for name in (WEIGHT, BIAS, OUTPUT))
    source = _flat(graph, head, taken) if head.pooled else head.value
    flat = head.pooled or head.rank == 2
    sizes = (head.classes, head.features) if flat else (head.features, head.classes)
    graph.initializer.extend(
        ir.serde.serialize_tensor(_drawn(head, name, shape))
        for name, shape in ((weight, sizes), (bias, (head.classes,)))
    )
    if flat:
        nodes = [helper.make_node("Gemm", [source, weight, bias], [output], "head", transB=1)]
    else:
        product = _fresh("head_product", taken)
        nodes = [
            helper.make_node("MatMul", [source, weight], [product], "head"),
            helper.make_node("Add", [product, bias], [output], "head_bias"),
        ]
    graph.node.extend(nodes)
    shape = [*[None] * (1 if flat else head.rank - 1), head.classes]
    graph.output.append(helper.make_tensor_value_info(output, int(head.dtype), shape))
    graph.output.extend(v for v in before if v.name in moved)
    dropped = tuple(v.name for v in before if v.name not in moved)
    kept = [each for each in model.metadata_props if each.key not in STALE]
    helper.set_model_props(model, {each.key: each.value for each in kept})
    return Attached(weight, bias, output, dropped)


def _flat(graph: onnx.GraphProto, head: Head, taken: set[str]) -> str:
    """The average of each image, as [batch, channels]."""
    pooled, flat = _fresh("head_pooled", taken), _fresh("head_features", taken)
    graph.node.append(helper.make_node("GlobalAveragePool", [head.value], [pooled], "head_pool"))
    graph.node.append(helper.make_node("Flatten", [pooled], [flat], "head_flatten", axis=1))
    return flat


def _drawn(head: Head, name: str, shape: tuple[int, ...]) -> ir.TensorProtocol:
    """Numbers within 1/√features.

    Source: `torch.nn.Linear.reset_parameters`, of which `kaiming_uniform_(a=√5)` has these bounds.
    """
    stream = np.random.default_rng([head.seed, zlib.crc32(name.encode())])
    bound = 1 / np.sqrt(head.features)
    drawn = stream.uniform(-bound, bound, shape).astype(head.dtype.numpy())
    return ir.Tensor(drawn, dtype=head.dtype, name=name)


def _prune(graph: onnx.GraphProto, wanted: set[str]) -> None:
    """Keep what values are computed from; the graph returns nothing as yet."""
    needed, kept = set(wanted), list[onnx.NodeProto]()
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(_read([node]))
    nodes = [_copy(node) for node in reversed(kept)]
    del graph.node[:]
    graph.node.extend(nodes)
    made = {name for node in nodes for name in node.output}
    known = needed | made
    for field in (graph.initializer, graph.sparse_initializer, graph.input, graph.value_info):
        for index in reversed(range(len(field))):
            if _name_of(field[index]) not in known:
                del field[index]


def _name_of(item: Any) -> str:
    """The name of a value or a tensor; a sparse one is called as its values are."""
    name: str = item.values.name if isinstance(item, onnx.SparseTensorProto) else item.name
    return name


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    found = onnx.NodeProto()
    found.CopyFrom(node)
    return found


def _read(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """The names that nodes read, and graphs inside of them."""
    found = set[str]()
    for node in nodes:
        found.update(node.input)
        for inner in walk.subgraphs(node):
            found |= _read(inner.node).union(v.name for v in inner.output)
    return found


def _names(graph: onnx.GraphProto) -> set[str]:
    """All names of a graph that a new value may not have."""
    found = {v.name for v in (*graph.input, *graph.initializer)}
    found |= set(map(_name_of, graph.sparse_initializer))
    for inner in walk.graphs(graph):
        found |= _read(inner.node).union(name for node in inner.node for name in node.output)
    return found


def _fresh(name: str, taken: set[str]) -> str:
    number, found = 1, name
    while found in taken:
        found, number = f"new_{name}" if number == 1 else f"new_{name}_{number}", number + 1
    taken.add(found)
    return found
