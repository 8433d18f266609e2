"""Checks of a model's structure, in plain Python, before any library or native code sees it.

    header      versions and imported domains
    functions   identity, and calls that never end
    scope       every name is written once, and before it is read
    operators   arity and attributes of each node, against the operator's schema
    bodies      as many inputs and outputs as the node around them has
    tensors     declared sizes against the bytes there are

A graph whose nodes are not in topological order is refused even where an order exists: ONNX
demands it, and the order of the nodes is the schedule that memory is planned for.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from gradtool.errors import ModelError
from gradtool.graph.limits import DEFAULT, Limits
from gradtool.io import external, literals, operators, scope, tensors, walk

# Versions of operator sets are numbers of 32 bits.
NO_VERSION = 2**31


def check(model: onnx.ModelProto, folder: external.Folder, limits: Limits = DEFAULT) -> None:
    """Refuse a model whose meaning is broken, or on whose meaning two readers could disagree.

    Raises:
        ModelError: one line that names the node or tensor and the rule.
    """
    _check_header(model)
    _check_counts(model, limits)
    _check_functions(model)
    scope.check(model, limits)
    operators.check(model)
    _check_bodies(model, opset_version(model))
    for tensor, where in walk.tensors(model):
        tensors.check(tensor, where, folder, limits)
    for sparse, where in walk.sparse_constants(model):
        literals.check(sparse, where, limits)
    _check_interface(model, limits)


def opset_version(model: onnx.ModelProto) -> int:
    """The version of the standard domain; the newest if the model imports others only."""
    versions = [entry.version for entry in model.opset_import if entry.domain in walk.STANDARD]
    return versions[0] if versions else onnx.defs.onnx_opset_version()


def _check_header(model: onnx.ModelProto) -> None:
    if not model.HasField("graph"):
        raise ModelError("is not an ONNX model: it has no graph")
    if model.ir_version < 1:
        raise ModelError(f"is not an ONNX model: IR version {model.ir_version}")
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"IR version {model.ir_version} is newer than {onnx.IR_VERSION}, the newest that "
            "this onnx package knows; upgrade onnx"
        )
    if not model.opset_import:
        raise ModelError("is not an ONNX model: it imports no operator set")
    _check_imports(model.opset_import, "the model")


def _check_imports(imports: list[onnx.OperatorSetIdProto], where: str) -> None:
    versions: dict[str, int] = {}
    for entry in imports:
        domain = "" if entry.domain in walk.STANDARD else entry.domain
        if abs(entry.version) >= NO_VERSION:
            raise ModelError(
                f"{where} imports domain {domain or 'ai.onnx'!r} at version {entry.version}, "
                "which no domain has"
            )
        if versions.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"{where} imports domain {domain or 'ai.onnx'!r} at versions "
                f"{versions[domain]} and {entry.version}"
            )
        if entry.version < 1:
            raise ModelError(f"{where} imports opset {entry.version} of {domain or 'ai.onnx'!r}")
    newest = onnx.defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise ModelError(
            f"{where} imports opset {versions['']}; the newest that this onnx package knows is "
            f"{newest}; upgrade onnx"
        )


def _check_counts(model: onnx.ModelProto, limits: Limits) -> None:
    total = 0
    for body in walk.bodies(model):
        for _ in walk.nodes(body):
            total += 1
            if total > limits.nodes:
                raise ModelError(f"has more than {limits.nodes} nodes")


def _check_functions(model: onnx.ModelProto) -> None:
    functions: dict[tuple[str, str, str], onnx.FunctionProto] = {}
    for function in model.functions:
        key = (walk.domain_of(function), function.name, function.overload)
        if key in functions:
            raise ModelError(f"local function {function.name!r} is defined twice")
        if not function.name:
            raise ModelError("a local function has no name")
        if operators.is_standard(key[0], key[1]):
            raise ModelError(f"local function {function.name!r} overrides a standard operator")
        functions[key] = function
        _check_imports(list(function.opset_import), f"local function {function.name!r}")
    _check_calls(functions)


def _check_calls(functions: dict[tuple[str, str, str], onnx.FunctionProto]) -> None:
    """Refuse a function that calls itself, directly or through others."""
    calls = {
        key: [
            callee
            for node in walk.nodes(function.node)
            if (callee := (walk.domain_of(node), node.op_type, node.overload)) in functions
        ]
        for key, function in functions.items()
    }
    done: set[tuple[str, str, str]] = set()
    for start, callees in calls.items():
        stack, path = [(start, iter(callees))], {start}
        while stack:
            key, rest = stack[-1]
            found = next((callee for callee in rest if callee not in done), None)
            if found is None:
                done.add(key)
                path.discard(key)
                stack.pop()
            elif found in path:
                raise ModelError(f"local function {found[1]!r} calls itself")
            else:
                path.add(found)
                stack.append((found, iter(calls[found])))


def _check_interface(model: onnx.ModelProto, limits: Limits) -> None:
    """Types of graph inputs and outputs; an initializer and the input it feeds agree."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for value in model.graph.input:
        where = f"graph input {value.name!r}"
        if not value.type.WhichOneof("value"):
            raise ModelError(f"{where}: has no type")
        _check_type(value.type, where, limits)
        tensor = initializers.get(value.name)
        if tensor is not None:
            _check_default(value, tensor, where)
    for value in model.graph.output:
        if value.type.WhichOneof("value"):
            _check_type(value.type, f"graph output {value.name!r}", None)


def _check_type(kind: onnx.TypeProto, where: str, limits: Limits | None) -> None:
    """Refuse an impossible type, and with `limits` an impossible shape of an array."""
    name = kind.WhichOneof("value")
    if name in ("sequence_type", "optional_type"):
        _check_type(getattr(kind, name).elem_type, where, limits)
    elif name in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, name)
        dtype = tensors.element_type(tensor.elem_type, where)
        if limits is not None:
            tensors.require_held([dim.dim_value for dim in tensor.shape.dim], dtype, where, limits)
    elif name == "map_type":
        raise ModelError(f"{where}: maps are not supported")
    else:
        raise ModelError(f"{where}: has no type")


def _check_default(value: onnx.ValueInfoProto, tensor: onnx.TensorProto, where: str) -> None:
    kind = value.type.tensor_type
    if kind.elem_type != tensor.data_type:
        raise ModelError(f"{where}: its type differs from its initializer's")
    if not kind.HasField("shape"):
        return
    fits = len(kind.shape.dim) == len(tensor.dims) and all(
        not dim.HasField("dim_value") or dim.dim_value == size
        for dim, size in zip(kind.shape.dim, tensor.dims, strict=True)
    )
    if not fits:
        raise ModelError(f"{where}: its shape differs from its initializer's {list(tensor.dims)}")


_SCAN_WITHOUT_BATCH = 9  # the first opset of the present Scan


def _check_bodies(model: onnx.ModelProto, version: int) -> None:
    """Check every If, Loop, Scan and SequenceMap of the graph and of the local functions.

    `version` is the model's opset.

    Raises:
        ModelError: naming the node, its graph and the two numbers.
    """
    for body in walk.bodies(model):
        for node in walk.nodes(body):
            rule = RULES.get(node.op_type)
            if rule is None or walk.domain_of(node):
                continue
            if rule is not _scan or version >= _SCAN_WITHOUT_BATCH:
                rule(node)


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    graphs: dict[str, onnx.GraphProto] = {a.name: a.g for a in node.attribute}
    return graphs[name]


def _require(node: onnx.NodeProto, what: str, found: int, needed: int, why: str) -> None:
    if found != needed:
        raise ModelError(f"{walk.label(node)}: {what}: {found}; there must be {needed}, {why}")


def _if(node: onnx.NodeProto) -> None:
    for name in ("then_branch", "else_branch"):
        branch = _graph(node, name)
        given = [value for value in branch.input if not _has_default(branch, value)]
        _require(node, f"inputs of {name}", len(given), 0, "for a branch only captures values")
        why = "the number of outputs of the node"
        _require(node, f"outputs of {name}", len(branch.output), len(node.output), why)


def _has_default(graph: onnx.GraphProto, value: onnx.ValueInfoProto) -> bool:
    return any(tensor.name == value.name for tensor in graph.initializer)


def _loop(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    carried = max(len(node.input) - 2, 0)
    why = f"the number of the turn, the condition and the {carried} carried values"
    _require(node, "inputs of its body", len(body.input), 2 + carried, why)
    why = f"the condition and the {len(node.output)} outputs of the node"
    _require(node, "outputs of its body", len(body.output), 1 + len(node.output), why)
    _require_states(node, carried)


def _scan(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    scanned = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    if not 1 <= scanned <= len(node.input):
        raise ModelError(
            f"{walk.label(node)}: num_scan_inputs {scanned} must be 1 to {len(node.input)}, the "
            "number of its inputs"
        )
    why = "the number of inputs of the node"
    _require(node, "inputs of its body", len(body.input), len(node.input), why)
    why = "the number of outputs of the node"
    _require(node, "outputs of its body", len(body.output), len(node.output), why)
    states = len(node.input) - scanned
    _require_states(node, states)
    made = len(node.output) - states
    for attribute in node.attribute:
        if attribute.name in ("scan_input_axes", "scan_input_directions"):
            _require(node, attribute.name, len(attribute.ints), scanned, "one for each scan input")
        if attribute.name in ("scan_output_axes", "scan_output_directions"):
            _require(node, attribute.name, len(attribute.ints), made, "one for each scan output")


def _require_states(node: onnx.NodeProto, states: int) -> None:
    if len(node.output) < states:
        raise ModelError(
            f"{walk.label(node)}: carries {states} values and has {len(node.output)} outputs; "
            "each carried value is an output"
        )


def _sequence_map(node: onnx.NodeProto) -> None:
    body = _graph(node, "body")
    why = "the number of inputs of the node"
    _require(node, "inputs of its body", len(body.input), len(node.input), why)
    why = "the number of outputs of the node"
    _require(node, "outputs of its body", len(body.output), len(node.output), why)


RULES: dict[str, Callable[[onnx.NodeProto], None]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
