"""A model to a Program: numbered values, kernel calls, views, workspaces, every size known."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from gradtool import costs, io
from gradtool.attributes import arguments
from gradtool.declared import operand
from gradtool.errors import UsageError
from gradtool.exec import kernel as registry
from gradtool.exec.kernel import Kernel
from gradtool.families import full_name
from gradtool.functions import DOMAIN
from gradtool.functions.calls import expand
from gradtool.overwriting import overwriting
from gradtool.passes.backward import free
from gradtool.passes.prune import inner_nodes
from gradtool.passes.stages import clones, original, stage
from gradtool.passes.train_mode import may_draw
from gradtool.passes.update_order import changing
from gradtool.program import Datum, Kind, Program, Spec, Step, View, contiguous, is_contiguous

MAX_SCALAR = 1


def flatten(
    model: ir.Model, *, dims: Mapping[str, int] | None = None, views: bool = True
) -> Program:
    """The program of a model whose input sizes are all known.

    Composites without a kernel are expanded first; the model itself is left as it is.  Without
    `views` every node is a step, also those that only lay a value out again: that is for looking
    at the graph, not for running it.

    Raises:
        UsageError: an input size is open, or an operator has no kernel.
    """
    open_sizes = io.symbols(model)
    if open_sizes:
        raise UsageError(f"sizes are open: {', '.join(open_sizes)}; give them with --dim NAME=SIZE")
    if any(n.domain == DOMAIN and not _has_kernel(n.op_type) for n in model.graph.all_nodes()):
        model = model.clone()
        expand(model, _has_kernel)
    _require_kernels(model)
    gradients = json.loads(model.metadata_props.get("gradtool.gradients", "{}"))
    state = json.loads(model.metadata_props.get("gradtool.state", "{}"))
    loss = model.metadata_props.get("gradtool.loss")
    trained = {*gradients, *state}
    flat = _Flat(model, model.graph, set(gradients.values()), trained, set(state), views=views)
    return flat.program(gradients, state, loss, dims or {})


def _has_kernel(composite: str) -> bool:
    return registry.find(DOMAIN, composite, 1) is not None


def _require_kernels(model: ir.Model) -> None:
    """Raise UsageError naming all operators without a kernel."""
    missing: dict[str, int] = {}
    counts = Counter((n.domain, n.op_type) for n in model.graph.all_nodes())
    for (domain, op), count in counts.items():
        version = model.graph.opset_imports.get(domain, 1)
        if op != "Constant" and registry.find(domain, op, version) is None:
            name = full_name(domain, op)
            missing[name] = missing.get(name, 0) + count
    if missing:
        rows = ", ".join(f"{op} ({count} nodes)" for op, count in sorted(missing.items()))
        raise UsageError(f"no kernel to run {rows}; try --engine ort")


class _Flat:
    """The state of one flattening: values by number, and what is known of each."""

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph,
        gradients: set[str] | None = None,
        trained: set[str] | None = None,
        state: set[str] | None = None,
        *,
        views: bool = True,
    ) -> None:
        self.views = views
        self.model = model
        self.graph = graph
        self.gradients = gradients or set()
        self.trained = trained or set()
        self.changing = changing(graph, state) if state else set()
        self.values: list[Datum] = []
        self.numbers: dict[ir.Value, int] = {}
        self.specs: dict[ir.Value, Spec | None] = {}
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.steps: list[Step] = []
        self.clones = clones(graph)

    def program(
        self,
        gradients: Mapping[str, str],
        state: Mapping[str, str],
        loss: str | None,
        dims: Mapping[str, int],
    ) -> Program:
        """The program of the whole graph; gradients, next values of state, and loss by name."""
        for value in self.graph.inputs:
            if not value.is_initializer():
                self._number(value, "input")
        inputs = tuple(range(len(self.values)))
        self._initializers()
        for node in self.graph:
            self._node(node)
        names = {d.name: i for i, d in enumerate(self.values)}
        later = {names[k]: names[v] for k, v in state.items() if k in names and v in names}
        program = Program(
            values=tuple(self.values),
            steps=tuple(self.steps),
            inputs=inputs,
            outputs=tuple(self.numbers[v] for v in self.graph.outputs),
            constants=MappingProxyType(self.constants),
            gradients=MappingProxyType({k: names[v] for k, v in gradients.items() if v in names}),
            state=MappingProxyType(later),
            loss=names.get(loss) if loss else None,
            dims=MappingProxyType(dict(dims)),
        )
        return overwriting(program)

    def subprogram(self, graph: ir.Graph) -> tuple[Program, list[ir.Value]]:
        """The program of a subgraph, and the outer values that are its further inputs.

        Outer constants become its own.
        """
        outer = free(graph)
        constants = [v for v in outer if self._is_constant(v)]
        captured = [v for v in outer if v not in constants]
        inner = _Flat(self.model, graph)
        for value in (*graph.inputs, *captured):
            inner._number(value, "input")
        inputs = tuple(range(len(inner.values)))
        for value in (*constants, *graph.initializers.values()):
            inner._constant(value, inner._kind_of_constant(value))
        for node in graph:
            inner._node(node)
        program = Program(
            values=tuple(inner.values),
            steps=tuple(inner.steps),
            inputs=inputs,
            outputs=tuple(inner.numbers[v] for v in graph.outputs),
            constants=MappingProxyType(inner.constants),
            formal=len(graph.inputs),
        )
        return program, captured

    # -------------------------------------------------------------------- values

    def _number(self, value: ir.Value, kind: Kind, view: View | None = None) -> int:
        index = self.numbers[value] = len(self.values)
        spec = self._spec(value)
        least = None if spec is not None else _least(value)
        self.values.append(Datum(value.name or "", spec, kind, view, least))
        return index

    def _spec(self, value: ir.Value) -> Spec | None:
        if value not in self.specs:
            self.specs[value] = _spec(value)
        return self.specs[value]

    def _initializers(self) -> None:
        for value in self.graph.initializers.values():
            if not _is_used(value):
                continue
            constant = self._is_constant(value)
            held: Kind = "state" if self._is_state(value) else "parameter"
            self._constant(value, self._kind_of_constant(value) if constant else held)

    def _is_state(self, value: ir.Value) -> bool:
        """Whether a value changes from step to step and serves nothing but updates."""
        return value in self.changing and all(stage(n) == "update" for n, _ in _users(value))

    def _is_constant(self, value: ir.Value) -> bool:
        """Whether a value is known and no parameter."""
        if value in self.changing:
            return False
        if not self._is_known(value) or not value.is_initializer():
            return self._is_known(value)
        spec = self._spec(value)
        small = spec is not None and math.prod(spec.shape) <= MAX_SCALAR
        is_float = value.dtype is not None and value.dtype.is_floating_point()
        host = self._kind_of_constant(value) == "host"
        return value.name not in self.trained and (host or small or not is_float)

    def _kind_of_constant(self, value: ir.Value) -> Kind:
        """On the host if nobody needs it elsewhere."""
        if value.is_graph_output():
            return "constant"
        return "host" if all(self._is_host(n, s) for n, s in _users(value)) else "constant"

    def _constant(self, value: ir.Value, kind: Kind) -> None:
        """Number a known value; data that is absent is asked for when the program is bound."""
        index = self._number(value, kind)
        absent = getattr(value.const_value, "absent", False)
        if kind == "host" or (kind == "constant" and not absent):
            assert value.const_value is not None  # noqa: S101 - an initializer or folded value
            self.constants[index] = io.array(value.const_value)

    def _is_host(self, node: ir.Node, slot: int) -> bool:
        found = self._kernel(node)
        return found is not None and slot in found.host

    def _kernel(self, node: ir.Node) -> Kernel | None:
        version = self.model.graph.opset_imports.get(node.domain, 1)
        return registry.find(node.domain, node.op_type, version)

    # --------------------------------------------------------------------- nodes

    def _node(self, node: ir.Node) -> None:
        wanted = [v for v in node.outputs if _is_used(v)]
        if not wanted:
            return
        if all(self._is_known(v) for v in wanted):
            for value in wanted:
                self._constant(value, self._kind_of_constant(value))
            return
        found = self._kernel(node)
        if found is None:
            raise UsageError(f"no kernel to run {full_name(node.domain, node.op_type)}")
        values = list(node.inputs)
        attributes = arguments(node)
        for name, attr in sorted(node.attributes.items()):
            if attr.type == ir.AttributeType.GRAPH:
                attributes[name], captured = self.subprogram(attr.as_graph())
                values += captured
        inputs = tuple(None if v is None else self.numbers[v] for v in values)
        specs = [
            operand(self.values, self.constants, i, on_host=slot in found.host)
            for slot, i in enumerate(inputs)
        ]
        whole = [self._spec(v) for v in node.outputs]  # kernels in the simple style return them all
        out = [s if v in wanted else None for v, s in zip(node.outputs, whole, strict=True)]
        if self.views and self._as_views(node, found, specs, wanted, attributes):
            return
        outputs = tuple(
            self._number(v, self._kind_of_result(v)) if v in wanted else None for v in node.outputs
        )
        dynamic = any(self.values[v].spec is None for v in (*inputs, *outputs) if v is not None)
        kind = node.domain, node.op_type
        version = self.model.graph.opset_imports.get(node.domain, 1)
        self.steps.append(
            Step(
                name=node.name or "",
                op=full_name(node.domain, node.op_type),
                inputs=inputs,
                outputs=outputs,
                attributes=MappingProxyType(attributes),
                stage=node.metadata_props.get("gradtool.stage", "forward"),  # type: ignore[arg-type]
                source=node.metadata_props.get("gradtool.source", ""),
                workspace=() if dynamic else found.workspace(specs, out, attributes),
                adapted_bytes=0 if dynamic else found.adapted_bytes(specs, whole, attributes),
                may_inplace=found.may_inplace,
                version=version,
                flops=None if dynamic else costs.flops(*kind, version, specs, out, attributes),
                moved=costs.moved(specs, out, op=full_name(*kind), attributes=attributes),
                recomputable=not dynamic and not any(map(may_draw, (node, *inner_nodes(node)))),
            )
        )

    def _is_known(self, value: ir.Value) -> bool:
        return value.const_value is not None and value not in self.changing

    def _kind_of_result(self, value: ir.Value) -> Kind:
        if value.name in self.gradients:
            return "gradient"
        return "output" if value.is_graph_output() else "activation"

    def _as_views(
        self,
        node: ir.Node,
        found: Kernel,
        specs: Sequence[Any],
        wanted: Sequence[ir.Value],
        attributes: Mapping[str, Any],
    ) -> bool:
        """Number the outputs as windows on input 0, if they may be."""
        base = node.inputs[0] if node.inputs else None
        if base is None or found.view is None:
            return False
        out = [self._spec(v) for v in node.outputs]
        if any(s is None for s in (*specs[:1], *out)):
            return False
        number = self.numbers[base]
        if self.values[number].kind == "host" or not _all_known(specs, found):
            return False
        strides = self._strides(number)
        windows = found.windows(specs, strides, [s for s in out if s is not None], attributes)
        if windows is None:
            return False
        fit = [
            is_contiguous(spec, window[1]) or self._takes_strides(value, spec, window[1])
            for value, spec, window in zip(node.outputs, out, windows, strict=True)
            if spec is not None and any(map(_is_used, self._twins(value)))
        ]
        if not all(fit):
            return False
        for value, window in zip(node.outputs, windows, strict=True):
            if value in wanted:
                self._number(value, self._kind_of_result(value), View(number, *window))
        return True

    def _strides(self, value: int) -> tuple[int, ...]:
        datum = self.values[value]
        assert datum.spec is not None  # noqa: S101 - asked only of known shapes
        return datum.view.strides if datum.view else contiguous(datum.spec)

    def _takes_strides(self, value: ir.Value, spec: Spec, strides: tuple[int, ...]) -> bool:
        """Whether all readers accept these strides, and they are kind to matrix products."""
        if any(twin.is_graph_output() for twin in self._twins(value)):
            return False
        last = [
            stride for size, stride in zip(spec.shape[-2:], strides[-2:], strict=True) if size > 1
        ]
        if last and min(last) != spec.dtype.itemsize:
            return False
        users = [n for twin in self._twins(value) for n, _ in _users(twin)]
        if any(n.graph is not self.graph for n in users):  # subgraphs are given gapless arrays
            return False
        kernels = [self._kernel(n) for n in users]
        return all(k is not None and k.strided for k in kernels)

    def _twins(self, value: ir.Value) -> list[ir.Value]:
        """The instances of a value that is recomputed: they must all lie in the same way.

        The bits of a matrix product depend on how its operands lie, and recomputing a value for
        some of its readers shall not change any bit.
        """
        node = value.producer()
        if node is None or not self.clones:
            return [value]
        twins = self.clones.get(original(node), [node])
        index = value.index() or 0
        return [twin.outputs[index] for twin in twins if twin.op_type == node.op_type]


def _all_known(specs: Sequence[Any], found: Kernel) -> bool:
    """Whether every host input that is present is a constant."""
    return all(
        s is None or isinstance(s, np.ndarray) for slot, s in enumerate(specs) if slot in found.host
    )


def _spec(value: ir.Value) -> Spec | None:
    """None where no plan can know it: strings, sequences, and sizes that depend on data."""
    shape, dtype = value.shape, value.dtype
    if shape is None or dtype is None or dtype == ir.DataType.STRING:
        return None
    if not isinstance(value.type, ir.TensorType) or not shape.is_static():
        return None
    return Spec(shape.numpy(), np.dtype(dtype.numpy()))


def _least(value: ir.Value) -> Spec | None:
    """What is known of a tensor whose shape depends on data: its type, its rank, some sizes."""
    if value.shape is None or value.dtype is None or not isinstance(value.type, ir.TensorType):
        return None
    if value.shape.is_static() or value.dtype == ir.DataType.STRING:
        return None
    sizes = tuple(d if isinstance(d, int) else 0 for d in value.shape)
    return Spec(sizes, np.dtype(value.dtype.numpy()))


def _users(value: ir.Value) -> Iterable[tuple[ir.Node, int]]:
    return ((use.node, use.idx) for use in value.uses())


def _is_used(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
