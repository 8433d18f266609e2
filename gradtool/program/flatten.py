"""A model to a Program: numbered values, kernel calls, views, workspaces, every size known."""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from gradtool import io
from gradtool.errors import UsageError
from gradtool.graph.attributes import arguments
from gradtool.graph.branches import left
from gradtool.graph.composites import DOMAIN
from gradtool.graph.error_context import blamed
from gradtool.graph.metadata import GROUP, SOURCE, STAGE
from gradtool.graph.names import label
from gradtool.graph.randomness import draws
from gradtool.graph.reads import free
from gradtool.graph.specs import Spec, least_of, spec_of
from gradtool.graph.training_info import TrainingInfo
from gradtool.operators.block_size import CACHE, DEVICE, grain
from gradtool.operators.kernel_sets import LIBRARY, NONE, Kernels
from gradtool.ops.composites.calls import expand
from gradtool.ops.kernels import Kernel
from gradtool.passes.update_order import changing
from gradtool.program import Kind, Program, Step, Value, View
from gradtool.program.declared import Call, Declarations, operand
from gradtool.program.donation import overwriting
from gradtool.program.kinds import Kinds
from gradtool.program.modules import Modules
from gradtool.program.operators import Operators, has_kernel, operators_of, require_kernels
from gradtool.program.views import Views

# The program of a dead branch.
NOTHING = Program((), (), (), (), MappingProxyType({}))
_NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})


def flatten(
    model: ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    views: bool = True,
    kernels: Kernels = "numpy",
    priced: bool = True,
    held: Container[str] = (),
) -> Program:
    """The program of a model whose input sizes are all known.

    Composites without a kernel are expanded first; the model itself is left as it is.  Without
    `views` every node is a step, also those that only lay a value out again: that is for looking
    at the graph, not for running it.  Native `kernels` run all they can, and need the workspace
    for it; those of CuPy need that of a device's pieces, and `none`, of another runtime, none.
    Without `priced`, steps have no operations and move no bytes.  Initializers among `held` lie in
    the arena, even if a file has them.

    Raises:
        UsageError: an input size is open, or an operator has no kernel.
    """
    _, program = flattened(
        model, dims or {}, views=views, kernels=kernels, priced=priced, held=held
    )
    if kernels not in (*LIBRARY, NONE):
        return program
    from gradtool.program.native import made_for

    return made_for(kernels, program)


def flattened(
    model: ir.Model,
    dims: Mapping[str, int],
    *,
    views: bool = True,
    kernels: Kernels = "numpy",
    priced: bool = True,
    held: Container[str] = (),
) -> tuple[Flat, Program]:
    """The flattening of a model, and its program before it is made for kernels.

    Raises:
        UsageError: as `flatten`.
    """
    io.require_sizes(model)
    counts = operators_of(model)
    if any(domain == DOMAIN and not has_kernel(op) for domain, op in counts):
        model = model.clone()
        expand(model, has_kernel)
        counts = operators_of(model)
    require_kernels(model, counts)
    info, pieces = TrainingInfo.of(model), DEVICE if kernels == "cupy" else CACHE
    gradients = set(info.gradients.values())
    with grain(pieces):
        flat = Flat(
            model, model.graph, gradients, info.changing, set(info.state), views=views,
            priced=priced, held=held,
        )  # fmt: skip
        program = flat.program(info.gradients, info.state, info.loss, dims)
    return flat, replace(program, is_grouped=info.kernels is not None, kernels=kernels)


class Recipe(NamedTuple):
    """A node in a program: the number of its step, None of views; the numbers of its operands."""

    node: ir.Node
    kernel: Kernel
    version: int
    attributes: Mapping[str, Any]
    inputs: tuple[int | None, ...]
    step: int | None


class Flat:
    """The state of one flattening: values by number, and the known facts of each.

    `recipes` are those of the nodes that run or lay a value out, in order.
    """

    def __init__(
        self,
        model: ir.Model,
        graph: ir.Graph,
        gradients: AbstractSet[str] = frozenset(),
        trained: AbstractSet[str] = frozenset(),
        state: AbstractSet[str] = frozenset(),
        *,
        views: bool = True,
        priced: bool = True,
        held: Container[str] = (),
    ) -> None:
        self.model = model
        self.held = held
        self.graph = graph
        self.operators = Operators(model.graph.opset_imports)
        self.views = Views(graph, self.operators.kernel) if views else None
        moving = changing(graph, state) if state else frozenset[ir.Value]()
        self.kinds = Kinds(self.operators.kernel, gradients, trained, moving)
        self.kinds.look_through(graph)
        self.modules = Modules(graph)
        self.values: list[Value] = []
        self.numbers: dict[ir.Value, int] = {}
        self.specs: dict[ir.Value, Spec | None] = {}
        self.alike: dict[Hashable, Spec | None] = {}
        self.declarations = Declarations(priced=priced)
        self.constants: dict[int, np.ndarray[Any, Any]] = {}
        self.steps: list[Step] = []
        self.recipes: list[Recipe] = []

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
        self._nodes()
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
        """The program of a subgraph, and its captured values as further inputs.

        Outer constants become its own.
        """
        outer = [v for v in free(graph) if self.kinds.is_read(v)]  # dead nodes read in vain
        constants = [v for v in outer if self.kinds.is_constant(v)]
        captured = [v for v in outer if v not in constants]
        inner = Flat(self.model, graph, priced=self.declarations.priced)
        for value in (*graph.inputs, *captured):
            inner._number(value, "input")
        inputs = tuple(range(len(inner.values)))
        for value in (*constants, *graph.initializers.values()):
            inner._constant(value, inner.kinds.of_constant(value))
        inner._nodes()
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
        least = None if spec is not None else least_of(value)
        by_column = spec is not None and self.views is not None and self.views.turns(value)
        self.values.append(Value(value.name or "", spec, kind, view, least, by_column=by_column))
        return index

    def _spec(self, value: ir.Value) -> Spec | None:
        """The spec of a value: one object for all that are equal."""
        if value not in self.specs:
            shape, kind = value.shape, value.type
            alike = None if shape is None else shape.dims, type(kind), value.dtype
            if alike not in self.alike:
                self.alike[alike] = spec_of(value)
            self.specs[value] = self.alike[alike]
        return self.specs[value]

    def _initializers(self) -> None:
        for value in self.graph.initializers.values():
            if self.kinds.is_read(value):
                self._constant(value, self.kinds.of_initializer(value))

    def _constant(self, value: ir.Value, kind: Kind) -> None:
        """Number a known value, and hold it unless its data comes when the program is bound."""
        index = self._number(value, kind)
        tensor, is_main = value.const_value, self.graph is self.model.graph
        if is_main and value.name not in self.held and self.kinds.stays_in_file(value):
            self.values[index] = replace(self.values[index], in_file=True)
        later = self.kinds.comes_later(value, is_main=is_main)
        if kind == "host" or (kind == "constant" and not later):
            assert tensor is not None  # noqa: S101 - an initializer or folded value
            self.constants[index] = io.array(tensor)

    # --------------------------------------------------------------------- nodes

    def _nodes(self) -> None:
        """Plan the nodes of the graph, in its order."""
        node: ir.Node | None = None
        with blamed(lambda: label(node) if node is not None else "", "planning"):
            for node in self.graph:
                self._planned(node)

    def _planned(self, node: ir.Node) -> None:
        wanted = [v for v in node.outputs if self.kinds.is_read(v)]
        if not wanted:
            return
        if self.kinds.is_folded(node):
            for value in wanted:
                self._constant(value, self.kinds.of_constant(value))
            return
        name, version, found = self.operators.of(node)
        if found is None:
            raise UsageError(f"no kernel to run {name}")
        attributes, captured = self._arguments(node) if node.attributes.data else ({}, [])
        inputs = tuple([None if v is None else self.numbers[v] for v in (*node.inputs, *captured)])
        specs = [
            operand(self.values, self.constants, i, on_host=slot in found.host)
            for slot, i in enumerate(inputs)
        ]
        whole = [self._spec(v) for v in node.outputs]  # kernels in the simple style return them all
        out = [s if v in wanted else None for v, s in zip(node.outputs, whole, strict=True)]
        recipe = Recipe(node, found, version, attributes, inputs, None)
        if self._as_views(node, found, specs, wanted, attributes):
            self.recipes.append(recipe)
            return
        self.recipes.append(recipe._replace(step=len(self.steps)))
        outputs = tuple(
            [
                self._number(v, self.kinds.of_result(v)) if v in wanted else None
                for v in node.outputs
            ]
        )
        dynamic = any(self.values[v].spec is None for v in (*inputs, *outputs) if v is not None)
        declared = self.declarations.of(
            Call(found, version, specs, out, whole, attributes, dynamic)
        )
        metadata = node.metadata_props
        self.steps.append(
            Step(
                name=node.name or "",
                op=name,
                inputs=inputs,
                outputs=outputs,
                attributes=MappingProxyType(attributes) if attributes else _NO_ATTRIBUTES,
                stage=metadata.get(STAGE, "forward"),  # type: ignore[arg-type]
                source=metadata.get(SOURCE, ""),
                workspace=declared.workspace,
                scratch_bytes=declared.scratch_bytes,
                may_inplace=found.may_inplace,
                over=found.over,
                version=version,
                flops=declared.flops,
                module=self.modules.of(node),
                moved=declared.moved,
                recomputable=not dynamic and not draws(node),
                group=metadata.get(GROUP, ""),
            )
        )

    def _arguments(self, node: ir.Node) -> tuple[dict[str, Any], list[ir.Value]]:
        """The attributes of a node, bodies as programs, and the captures of these."""
        attributes, captured = arguments(node), list[ir.Value]()
        for name, attr in sorted(node.attributes.items()):
            if name == left(node):
                attributes[name] = NOTHING
            elif attr.type == ir.AttributeType.GRAPH:
                attributes[name], more = self.subprogram(attr.as_graph())
                captured += more
        return attributes, captured

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
        if self.views is None or base is None or found.view is None:
            return False
        number = self.numbers[base]
        if self.values[number].kind == "host" or self.values[number].spec is None:
            return False
        out = [self._spec(v) for v in node.outputs]
        strides = self.values[number].strides
        windows = self.views.windows(node, found, specs, strides, out, attributes)
        if windows is None:
            return False
        for value, window in zip(node.outputs, windows, strict=True):
            if value in wanted:
                self._number(value, self.kinds.of_result(value), View(number, *window))
        return True
