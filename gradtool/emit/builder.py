"""The builder: emits typed, shaped nodes.  Every node that a rule or a pass adds comes from here.

Rules and composite bodies receive it as `op`.  `op.MatMul(a, b)` emits that operator, `op.Name(…)`
a composite if one of that name is registered; lowercase methods are idioms of several operators
(`op.reshape`, `op.sum`, `op.expand`, …), written so that unknown sizes work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, cast

import numpy as np
import onnx_ir as ir

from gradtool.emit import arithmetic
from gradtool.emit.idioms import Idioms
from gradtool.errors import ModelError
from gradtool.graph import composites
from gradtool.graph.attributes import attribute
from gradtool.graph.composites import DOMAIN
from gradtool.graph.metadata import SOURCE, STAGE
from gradtool.graph.names import Names
from gradtool.graph.predicates import is_float, is_tensor
from gradtool.graph.typed import Dims, Emit, Operand, Tensor
from gradtool.shapes import hidden
from gradtool.shapes.memo import Memo

Typed = tuple[ir.TypeProtocol | None, ir.Shape | None]
_UNKNOWN: Typed = None, None

# Before this version of the IR every initializer had to be an input as well.
_CONSTANTS = 4


arithmetic.install()


class Builder(Idioms):
    """Emits nodes at the end of `graph`, or before `anchor` if one is given.

    Every emitted value has a type and a shape (perhaps symbolic).  Constants become initializers
    of the outermost graph, each value once.  `ste` tells rules of rounding operators to let
    gradients straight through; `in_pieces` tells bodies of many elementwise steps to compute them
    a piece at a time; `on_node` is called with every node that is emitted.  `active` are the values
    that gradients are wanted of, for rules of nodes with subgraphs.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        names: Names | None = None,
        graph: ir.Graph | None = None,
        stage: str = "backward",
    ) -> None:
        from onnx_shape_inference import ShapeInferenceContext

        from gradtool.shapes.folding import Folding
        from gradtool.shapes.inference import register_shapes

        register_shapes()
        self.model = model
        self.root = model.graph
        self.graph = graph or model.graph
        self.opset = model.graph.opset_imports.get("", 1)
        self.names = names or Names.of(model)
        self.stage = stage
        self.source = ""
        self.prefix = ""
        self.anchor: ir.Node | None = None
        self.emitted: list[ir.Node] = []
        self.results: tuple[ir.Value, ...] = ()
        self.ste = False
        self.masters = False
        self.in_pieces = False
        self.on_node: Callable[[ir.Node], object] | None = None
        self.context = ShapeInferenceContext(model.graph.opset_imports, policy="override")
        self.context.reserve_symbol_names(self.names.symbols)
        self._memo = Memo(self.context)
        self._rule = cache(partial(_shape_rule, self.opset))
        self.folding = Folding(model)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        self._said: dict[Hashable, Tensor] = {}  # by the integers that were asked for
        self._symbols: dict[str, tuple[ir.Value, int]] = {}
        self._indexed = -1
        self._defined: dict[str, Tensor] = {}
        self.enclosing: list[ir.Graph] = []
        self.near: tuple[ir.Value, ...] = ()
        self.active: AbstractSet[ir.Value] = frozenset()
        self.stopped: set[ir.Value] = set()  # values that no gradient flows through

    # ------------------------------------------------------------------ emitting

    def __getattr__(self, op_type: str) -> Emit:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)

        def emit(
            *inputs: Operand,
            outputs: int | None = None,
            like: ir.Value | None = None,
            **attributes: Any,
        ) -> Tensor:
            return self.emit(op_type, inputs, outputs, attributes, like)

        return emit  # not kept: a reference cycle is freed late, or never

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Operand],
        outputs: int | None,
        attributes: dict[str, Any],
        like: ir.Value | None = None,
    ) -> Tensor:
        """Emit one node. Returns its value, or a tuple of values if it has several outputs.

        The type and shape of a single output are those of `like`, where they can't be inferred.
        """
        known = composites.find(op_type)
        domain = DOMAIN if known else ""
        count = outputs or (known.outputs if known else 1)
        while not known and inputs and inputs[-1] is None:  # which onnxruntime may take for present
            inputs = inputs[:-1]
        given = [attribute(k, v) for k, v in attributes.items() if v is not None]
        node = self.place(domain, op_type, self._operands(inputs), given, [_UNKNOWN] * count)
        if known:
            self.model.graph.opset_imports.setdefault(DOMAIN, 1)
        if like is None:
            self.infer(node)
        else:
            node.outputs[0].type = like.type
            node.outputs[0].shape = None if like.shape is None else like.shape.copy()
        self.tell(node)
        made = node.outputs[0] if count == 1 else tuple(node.outputs)
        return cast("Tensor", made)

    def place(
        self,
        domain: str,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Sequence[ir.Attr],
        outputs: Sequence[Typed],
    ) -> ir.Node:
        """Put a node at the current point of emission, with outputs of these types and shapes."""
        name = self.names.fresh(f"{self.prefix}/{op_type}" if self.prefix else op_type)
        node = ir.Node(
            domain, op_type, inputs, attributes, name=name,
            outputs=[
                ir.Value(name=self.names.fresh(f"{name}:{index}"), type=kind, shape=shape)
                for index, (kind, shape) in enumerate(outputs)
            ],
            metadata_props={STAGE: self.stage, SOURCE: self.source},
        )  # fmt: skip
        self.emitted.append(node)
        if self.anchor is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.anchor, node)
        return node

    def tell(self, node: ir.Node) -> None:
        """Report an emitted node to whoever asked for it, and find its sizes."""
        self._index(node)
        if self.on_node is not None:
            self.on_node(node)

    def call(self, node: ir.Node) -> Hashable | None:
        """The facts of a node but for its inputs; None if they can't be compared."""
        return self._memo.call(node)

    def knows_elements(self, value: ir.Value) -> bool:
        """Whether more is known of a value than its type and shape: sizes that it holds."""
        return not is_float(value) and self.context.get_symbolic_value(value) is not None

    def infer(self, node: ir.Node) -> None:
        """Set type and shape of the outputs of `node`, and the values that follow from constants.

        Raises:
            ModelError: that fails.
        """
        if self.folding.is_known(node) or any(v and self.folding.changes(v) for v in node.inputs):
            self._infer(node)
        else:
            self._memo.infer(node, lambda: self._infer(node))

    def _infer(self, node: ir.Node) -> None:
        rule = self._rule(node.domain, node.op_type)
        try:
            if rule is not None:
                with hidden([v for v in node.inputs if v is not None and self.folding.changes(v)]):
                    rule(self.context, node)
            self.folding.fold(self.context, node)
        except ValueError as error:
            raise ModelError(f"{node.op_type} {node.name!r}: {error}") from error
        for value in node.outputs:
            tensor = is_tensor(value)
            if value.name and (value.dtype is None or (tensor and value.shape is None)):
                raise ModelError(
                    f"{node.op_type} {node.name!r}: its shape can't be inferred from "
                    f"{[str(i.shape) if i is not None else None for i in node.inputs]}"
                )

    def _operands(self, inputs: Sequence[Operand]) -> list[ir.Value | None]:
        if all(i is None or type(i) is ir.Value for i in inputs):
            return list(inputs)  # type: ignore[arg-type]
        types = [i.dtype for i in inputs if isinstance(i, ir.Value)]
        like = next((t for t in types if t != ir.DataType.BOOL), types[0] if types else None)
        return [
            i if i is None or isinstance(i, ir.Value) else self.constant(i, like) for i in inputs
        ]

    # ----------------------------------------------------------------- constants

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> Tensor:
        """A constant. Sequences of integers are int64; a scalar takes `dtype` if it is given."""
        if type(value) is int:
            said: Hashable = "scalar", value, dtype
        elif type(value) in (list, tuple) and all(type(v) is int for v in value):
            said = tuple(value)
        else:
            return self._constant(value, dtype)
        if said not in self._said:
            self._said[said] = self._constant(value, dtype)
        return self._said[said]

    def _constant(self, value: Any, dtype: ir.DataType | None) -> Tensor:
        array = np.asarray(value)
        if isinstance(value, (list, tuple)):
            if array.size and array.dtype.kind not in "biu":
                raise TypeError(f"{value} are no integers: pass an array, whose type is kept")
            array = array.astype(np.int64)
        elif not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype((dtype or ir.DataType.INT64).numpy())
        key = (array.dtype.str + array.dtype.name, array.shape, array.tobytes())
        held = self._constants.get(key)
        if held is None or self.root.initializers.get(held.name or "") is not held:  # pruned
            made = self.initializer(ir.Tensor(array, name=self.names.fresh("const")))
            self.model.ir_version = max(self.model.ir_version, _CONSTANTS)
            self._constants[key] = made
        return self._constants[key]

    def initializer(self, tensor: ir.TensorProtocol) -> Tensor:
        """A new initializer of the name, the type and the shape of a tensor."""
        made = Tensor(
            name=tensor.name, shape=ir.Shape(tensor.shape.numpy()),
            type=ir.TensorType(tensor.dtype), const_value=tensor,
        )  # fmt: skip
        self.root.register_initializer(made)
        return made

    # ----------------------------------------------------------------- subgraphs

    @contextmanager
    def body(self, inputs: Sequence[ir.Value]) -> Iterator[ir.Graph]:
        """Emit into a new subgraph with `inputs`, to be passed as an attribute (Scan, Loop, If)."""
        inner = ir.Graph(
            inputs, [], nodes=[], name=self.names.fresh("body"), opset_imports={"": self.opset}
        )
        with self.inside(inner):
            yield inner

    @contextmanager
    def inside(self, graph: ir.Graph) -> Iterator[None]:
        """Emit at the end of a subgraph, within the current graph of emission."""
        outer = (self.graph, self.anchor, self.emitted)
        self.enclosing.append(self.graph)
        self.graph, self.anchor, self.emitted = graph, None, []
        try:
            yield
        finally:
            self.enclosing.pop()
            self.graph, self.anchor, self.emitted = outer

    def formal(self, hint: str, shape: Dims, dtype: ir.DataType) -> Tensor:
        """An input of a subgraph."""
        return Tensor(name=self.names.fresh(hint), shape=ir.Shape(shape), type=ir.TensorType(dtype))

    # ------------------------------------------------------------------- context

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Let `+ - * / ** @`, unary `-`, `abs`, `mean` and `sum` of values emit nodes."""
        before = ir.set_value_magic_handler(self)
        try:
            yield
        finally:
            ir.set_value_magic_handler(before)

    def at(self, anchor: ir.Node | None, *, stage: str, source: str, prefix: str) -> _Elsewhere:
        """Emit before `anchor` (None: at the end), on behalf of forward node `source`.

        This holds within the context returned.  Names of nodes begin with `prefix`.
        """
        graph = None if anchor is None else anchor.graph
        return _Elsewhere(self, (anchor, graph or self.graph, stage, source, prefix))

    def forget_sizes(self) -> None:
        """Look for open sizes anew: values they were read from have left the graph."""
        self._symbols.clear()
        self._indexed = -1

    def all_outputs(self, node: ir.Node, count: int) -> tuple[Tensor, ...]:
        """The first `count` outputs of forward node `node`, absent optional ones added to it."""
        if len(node.outputs) < count:
            node.resize_outputs(count)
        if any(v.type is None or not v.name for v in node.outputs[:count]):
            for index, value in enumerate(node.outputs[:count]):
                if not value.name:
                    value.name = self.names.fresh(f"{node.name}:{index}")
            self.infer(node)
        return cast("tuple[Tensor, ...]", tuple(node.outputs[:count]))


_Place = tuple[ir.Node | None, Any, str, str, str]


class _Elsewhere:
    """A context of emission at another place, and back again after; entered for every node."""

    __slots__ = ("_op", "_place")

    def __init__(self, op: Builder, place: _Place) -> None:
        self._op, self._place = op, place

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        op = self._op
        before = op.anchor, op.graph, op.stage, op.source, op.prefix
        op.anchor, op.graph, op.stage, op.source, op.prefix = self._place
        self._place = before


def _shape_rule(opset: int, domain: str, op_type: str) -> Callable[..., object] | None:
    from onnx_shape_inference import registry

    found: Callable[..., object] | None = registry.get(
        domain, op_type, version=1 if domain else opset
    )
    return found
