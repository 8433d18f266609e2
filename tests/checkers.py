"""The generic checks: one for gradients, one for kernels, one for shapes, one for exports."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import onnx_ir as ir
from cases import Case, Floats

from gradtool import io
from gradtool.emit.builder import Builder
from gradtool.exec.dynamic import _infer
from gradtool.graph.attributes import arguments, attribute
from gradtool.graph.families import full_name, split_name
from gradtool.graph.specs import Spec
from gradtool.ops import kernels as registry
from gradtool.ops.composites.calls import expand, inline
from gradtool.ops.driver import differentiate
from gradtool.ops.shared.call import call, spec_of
from gradtool.passes.lower_recurrent import lower_recurrent
from gradtool.program import Step
from gradtool.program.flatten import Flat

Feeds = dict[str, np.ndarray]


def build(case: Case, dtype: Any = np.float64, *, symbolic: bool = False) -> tuple[ir.Model, Feeds]:
    """A model of one node, lowered as by loading, and its inputs. Constants are initializers."""
    rng = np.random.default_rng(sum(map(ord, case.id)))
    graph = ir.Graph([], [], nodes=[], name="case", opset_imports={"": case.opset})
    model = ir.Model(graph, ir_version=10)
    feeds: Feeds = {}
    values: list[ir.Value | None] = []
    for slot, given in enumerate(case.inputs):
        if given is None:
            values.append(None)
            continue
        name = f"x{slot}"
        array = given.draw(rng).astype(dtype) if isinstance(given, Floats) else np.asarray(given)
        tensor = _tensor(array, name)
        shape: list[Any] = list(array.shape)
        if symbolic and isinstance(given, Floats) and shape and not given.fixed:
            shape[0] = f"d{slot}_{shape[0]}"
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(tensor.dtype))
        if isinstance(given, Floats):
            graph.inputs.append(value)
            feeds[name] = array
        else:
            value.shape = ir.Shape(array.shape)
            value.const_value = tensor
            graph.register_initializer(value)
        values.append(value)
    domain, op_type = split_name(case.op)
    if domain == "ai.onnx.ml":
        graph.opset_imports[domain] = 5
    node = ir.Node(
        domain, op_type, values,
        [attribute(k, v) for k, v in case.attributes.items()],
        num_outputs=case.outputs, name="node",
    )  # fmt: skip
    for index, value in enumerate(node.outputs):
        value.name = f"y{index}"
    graph.append(node)
    op = Builder(model)
    op.infer(node)
    graph.outputs.extend(node.outputs)
    lower_recurrent(model)
    return model, feeds


def _tensor(array: np.ndarray, name: str) -> ir.TensorProtocol:
    if array.dtype.kind not in "OU":
        return ir.Tensor(array, name=name)
    stored = np.array([str(s).encode() for s in array.ravel()], object).reshape(array.shape)
    return ir.StringTensor(stored, name=name)


def differentiated(
    case: Case, dtype: Any = np.float64, *, symbolic: bool = False
) -> tuple[ir.Model, Feeds, list[str]]:
    """The model of a case with the gradients of `Σ y·c` as outputs, `c` an input per output."""
    known, feeds = build(case, dtype)
    outputs = evaluate(known, feeds)
    model = build(case, dtype, symbolic=True)[0] if symbolic else known
    op = Builder(model)
    rng = np.random.default_rng(7)
    heads = {}
    for value in list(model.graph.outputs):
        if value.dtype is None or not value.dtype.is_floating_point():
            continue
        seed = ir.Value(name=f"c_{value.name}", shape=value.shape, type=value.type)
        model.graph.inputs.append(seed)
        feeds[seed.name] = rng.uniform(0.5, 1.5, outputs[value.name].shape).astype(
            value.dtype.numpy()
        )
        heads[value] = seed
    made = differentiate(op, heads, free_inputs(model, case))
    names = []
    for value, grad in made.gradients.items():
        if grad in model.graph.outputs or grad.producer() is None or grad.name in names:
            grad = op.Identity(grad)  # noqa: PLW2901
        names.append(grad.name)
        model.graph.outputs.append(grad)
        assert grad.dtype == value.dtype
    return model, feeds, names


def evaluate(model: ir.Model, feeds: Feeds) -> Feeds:
    """Every value of a model by our kernels, one call after the other."""
    known: dict[str, Any] = dict(feeds)
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        _learn(sizes, value, known[value.name].shape)
    for name, value in model.graph.initializers.items():
        known[name] = io.array(value.const_value)
    for node in model.graph:
        version = model.graph.opset_imports.get(node.domain, 1)
        found = registry.find(node.domain, node.op_type, version)
        assert found is not None, f"no kernel for {node.domain}::{node.op_type}"
        attributes, captured = _with_programs(model, node)
        inputs = [None if v is None else known[v.name] for v in (*node.inputs, *captured)]
        out = [
            Spec(_concrete(v.shape, sizes), v.dtype.numpy()) if v.name else None
            for v in node.outputs
        ]
        if not found.allocating and any(s is not None and not _sized(s) for s in out):
            out = _sized_by_data(node, version, found, inputs, attributes)
        results = call(np, found, inputs, out, attributes)
        for value, spec, result in zip(node.outputs, out, results, strict=True):
            if spec is not None:
                _learn(sizes, value, result.shape)
                spec = Spec(_concrete(value.shape, sizes), spec.dtype)  # noqa: PLW2901
                assert result.shape == spec.shape, (
                    f"{node.op_type}: {result.shape}, not {spec.shape}"
                )
                assert result.dtype == spec.dtype, (
                    f"{node.op_type}: {result.dtype}, not {spec.dtype}"
                )
                known[value.name] = result
    return known


def free_inputs(model: ir.Model, case: Case) -> list[ir.Value]:
    """The inputs of a case's model that are differentiated."""
    free = [not given.fixed for given in case.inputs if isinstance(given, Floats)]
    return [v for v, is_free in zip(model.graph.inputs, free, strict=False) if is_free]


def _sized(spec: Spec) -> bool:
    return all(isinstance(d, int) and d >= 0 for d in spec.shape)


def _sized_by_data(
    node: ir.Node, version: int, found: registry.Kernel, inputs: list[Any], attributes: Any
) -> list[Spec | None]:
    """What the outputs are for these very inputs."""
    name = full_name(node.domain, node.op_type)
    step = Step(node.name, name, (), tuple(range(len(node.outputs))), attributes, version=version)
    specs = _infer(step, found, inputs)
    return [s if v.name else None for s, v in zip(specs, node.outputs, strict=True)]


def _with_programs(model: ir.Model, node: ir.Node) -> tuple[dict[str, Any], list[ir.Value]]:
    """The attributes of a node, subgraphs as programs, and the values that these capture."""
    attributes, captured = arguments(node), []
    for name, attr in node.attributes.items():
        if attr.type == ir.AttributeType.GRAPH:
            attributes[name], more = Flat(model, model.graph).subprogram(attr.as_graph())
            captured += more
    return attributes, captured


def _learn(sizes: dict[str, int], value: ir.Value, shape: tuple[int, ...]) -> None:
    """Take down what the symbols in the shape of a value stand for."""
    for dim, size in zip(value.shape, shape, strict=True):
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None:
            sizes.setdefault(dim.value, size)


def _concrete(shape: ir.Shape, sizes: dict[str, int]) -> tuple[int, ...]:
    """A shape in numbers; -1 for a size that depends on data that isn't known yet."""
    return tuple(
        d if isinstance(d, int) else -1 if (n := d.evaluate(sizes)) is None else n for d in shape
    )


def check_gradient(case: Case) -> float:
    """Gradients against five-point differences along a random direction, in float64.

    An operator whose output is of single precision whatever its input is held to less.

    Returns the largest relative error of `⟨gradient, direction⟩`, over the inputs.
    """
    model, feeds, names = differentiated(case)
    found = evaluate(model, feeds)
    h, bound = step_and_bound(model, found)
    bodies, _, _ = differentiated(case)
    expand(bodies, lambda _: False)
    if all(_has_kernel(bodies, n) for n in bodies.graph):
        again = evaluate(bodies, feeds)
        for mine, other in zip(model.graph.outputs, bodies.graph.outputs, strict=True):
            a, b = found[mine.name], again[other.name]
            _agree(a, b, rtol=bound / 10, atol=bound / 1000, name=mine.name)
    forward, _ = build(case)
    seeds = {n[2:]: c for n, c in feeds.items() if n.startswith("c_")}
    rng = np.random.default_rng(11)
    worst = 0.0
    slots = [s for s, i in enumerate(case.inputs) if isinstance(i, Floats) and not i.fixed]
    for slot, name in zip(slots, names, strict=True):
        direction = rng.uniform(-1, 1, feeds[f"x{slot}"].shape)
        inputs = {k: v for k, v in feeds.items() if not k.startswith("c_")}

        def loss(
            t: float, slot: int = slot, direction: Any = direction, inputs: Feeds = inputs
        ) -> float:
            moved = inputs | {f"x{slot}": np.asarray(inputs[f"x{slot}"] + t * direction)}
            values = evaluate(forward, moved)
            return float(sum(np.vdot(values[n], c) for n, c in seeds.items()))

        slope = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
        mine = float(np.vdot(found[name], direction))
        scale = (
            np.linalg.norm(found[name]) * np.linalg.norm(direction) + abs(loss(0.0)) * 1e-3 + 1e-9
        )
        worst = max(worst, abs(mine - slope) / scale)
        assert worst < bound, f"input {slot}: {mine}, finite differences say {slope}"
    return worst


def step_and_bound(model: ir.Model, found: Feeds) -> tuple[float, float]:
    """The step of differences and the error allowed.

    Operators of ai.onnx.ml give float32 whatever they are given, so no more can be asked of them.
    """
    single = any(
        node.domain == "ai.onnx.ml" and v.name in found and found[v.name].dtype == np.float32
        for node in model.graph for v in node.outputs
    )  # fmt: skip
    return (2e-2, 1e-4) if single else (1e-3, 1e-8)


def _has_kernel(model: ir.Model, node: ir.Node) -> bool:
    version = model.graph.opset_imports.get(node.domain, 1)
    return registry.find(node.domain, node.op_type, version) is not None


def check_kernel(
    case: Case, dtype: Any = np.float32, rtol: float = 2e-5, atol: float = 2e-6
) -> None:
    """Forward on our kernels against onnxruntime."""
    model, feeds = build(case, dtype)
    ours = evaluate(model, feeds)
    inline(model)
    _compare(model, feeds, ours, rtol, atol)


def check_export(
    case: Case, dtype: Any = np.float32, rtol: float = 3e-4, atol: float = 3e-5
) -> None:
    """The gradient graph, composites replaced by bodies, in onnxruntime against our kernels."""
    model, feeds, _ = differentiated(case, dtype)
    ours = evaluate(model, feeds)
    inline(model)
    _compare(model, feeds, ours, rtol, atol)


def _compare(model: ir.Model, feeds: Feeds, ours: Feeds, rtol: float, atol: float) -> None:
    import onnx
    import onnxruntime as ort

    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    theirs = session.run(None, {k: v for k, v in feeds.items() if k in wanted})
    for name, expected in zip(names, theirs, strict=True):
        _agree(ours[name], expected, rtol=rtol, atol=atol, name=name)


def _agree(mine: Any, expected: Any, *, rtol: float, atol: float, name: str) -> None:
    if mine.dtype == object:
        np.testing.assert_array_equal(mine, expected, err_msg=name)
    else:
        np.testing.assert_allclose(mine, expected, rtol=rtol, atol=atol, err_msg=name)


def check_symbolic(case: Case, rtol: float = 3e-4, atol: float = 3e-5) -> None:
    """The gradient graph of inputs with unknown first sizes, in onnxruntime, against known ones."""
    import onnxruntime as ort

    known, feeds, names = differentiated(case, np.float32)
    ours = evaluate(known, feeds)
    model, _, others = differentiated(case, np.float32, symbolic=True)
    inline(model)
    proto = ir.to_proto(model)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = {i.name for i in session.get_inputs()}
    theirs = session.run(others, {k: v for k, v in feeds.items() if k in wanted})
    for name, expected in zip(names, theirs, strict=True):
        _agree(ours[name], expected, rtol=rtol, atol=atol, name=name)


def check_memory(op: str, inputs: list[Any], outputs: list[Spec], **attributes: Any) -> None:
    """A kernel call on arrays at hand takes numpy's own buffers (96 KiB) and small change."""
    found = registry.find(*split_name(op), 20)
    assert found is not None
    specs = [i if i is None or s in found.host else spec_of(i) for s, i in enumerate(inputs)]
    out = [np.empty(s.shape, s.dtype) for s in outputs]
    work = [np.empty(s.shape, s.dtype) for s in found.workspace(specs, outputs, attributes)]
    with np.errstate(all="ignore"):
        found.function(np, *inputs, **found.buffers(out, work), **attributes)
        tracemalloc.start()
        try:
            found.function(np, *inputs, **found.buffers(out, work), **attributes)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak <= 114688, f"{op} takes {peak} bytes"


def check_inplace(case: Case) -> None:
    """Every kernel of a case and its gradient writes the same over each input that it may."""
    made = differentiated(case, np.float32)[:2] if case.gradient else build(case, np.float32)
    model, feeds = made
    known = evaluate(model, feeds)
    for node in model.graph:
        version = model.graph.opset_imports.get(node.domain, 1)
        entry = registry.find(node.domain, node.op_type, version)
        assert entry is not None
        if entry.allocating:
            continue
        for slot in entry.may_inplace:
            _check_slot(entry, slot, node, known)


def _check_slot(entry: registry.Kernel, slot: int, node: ir.Node, known: Feeds) -> None:
    inputs = [None if v is None else np.array(known[v.name]) for v in node.inputs]
    out = [np.empty_like(known[v.name]) if v.name else None for v in node.outputs]
    place = inputs[slot] if slot < len(inputs) else None
    first = out[0]
    if place is None or first is None or (place.shape, place.dtype) != (first.shape, first.dtype):
        return
    specs = [i if i is None or s in entry.host else spec_of(i) for s, i in enumerate(inputs)]
    given = arguments(node)
    wanted = [None if o is None else spec_of(o) for o in out]
    work = [np.empty(s.shape, s.dtype) for s in entry.workspace(specs, wanted, given)]
    out[0] = place
    entry.function(np, *inputs, **entry.buffers(out, work), **given)
    name = f"{entry.name} over input {slot}"
    np.testing.assert_array_equal(out[0], known[node.outputs[0].name], err_msg=name)
