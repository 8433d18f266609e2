"""The interface that ONNX defines for runtimes: `onnx.backend.base.Backend` over our kernels.

    import backend

    prepared = backend.prepare(model)
    outputs = prepared.run(inputs)

Models may hold what files for training may not: strings, sequences, sizes that depend on data.
Sizes are taken from the inputs, and a program is planned for each set of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir
from onnx.backend.base import Backend, BackendRep, namedtupledict

from gradtool import io, shapes
from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.binding import Bindings
from gradtool.exec.device import Device
from gradtool.exec.shared_arena import Store
from gradtool.io.definitions import expand_definitions
from gradtool.ops import kernels as registry
from gradtool.passes.lower_contrib import lower_contrib
from gradtool.passes.lower_gradient import lower_gradients
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.plan import Plan
from gradtool.program.flatten import flatten
from gradtool.shapes.inference import register_shapes
from gradtool.text.words import suggest

MOST_BINDINGS = 16


class Prepared(BackendRep):
    """A model that is ready to run; one plan for each of the last sets of input sizes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        register_shapes()
        self.model = io.from_proto(model)
        expand_definitions(self.model, _has_kernel)
        self.names = [v.name or "" for v in self.model.graph.inputs if not v.is_initializer()]
        self._bindings = self._bound()

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """The outputs, by position and by name. `inputs` are by position or by name too.

        An array with the name of an initializer takes its place.

        Raises:
            UsageError: an input is missing or has another type than the model's, or none has a name
                that is given.
        """
        held = self._held(inputs)
        given = _by_name(self.names, inputs)
        model = feeds.with_values(self.model, held)
        bindings = self._bound() if held else self._bindings
        binding = bindings.find(given) or bindings.add(*_planned(model, given))
        executor = binding.enter()
        executor.rewind()
        for name, array in given.items():
            executor.set_input(name, array)
        with np.errstate(all="ignore"):
            executor.step()
        found = [executor.result(index) for index in executor.program.outputs]
        names = [v.name or "" for v in self.model.graph.outputs]
        outputs: tuple[Any, ...] = namedtupledict("Outputs", names)(*found)
        return outputs

    def _bound(self) -> Bindings:
        """Plans for the latest input sizes, over one copy of the weights."""
        store = Store(Device("cpu", np))
        return Bindings(store, MOST_BINDINGS, self.model.graph.initializers)

    def _held(self, inputs: Any) -> dict[str, Any]:
        """The arrays that are given by name for initializers."""
        initializers = self.model.graph.initializers
        extra = [n for n in inputs if n not in self.names] if isinstance(inputs, Mapping) else []
        unknown = [name for name in extra if name not in initializers]
        if unknown:
            known = (*self.names, *initializers)
            raise UsageError(f"the model has no input {unknown[0]!r}{suggest(unknown[0], known)}")
        return {n: feeds.in_type_of(initializers[n], inputs[n], "inputs") for n in extra}


def _planned(model: ir.Model, given: Mapping[str, Any]) -> tuple[Plan, ir.Model]:
    """The plan of a model for inputs of these sizes, and the model that has them."""
    model = model.clone()
    for value in model.graph.inputs:
        array = given.get(value.name or "")
        if isinstance(array, np.ndarray) and isinstance(value.type, ir.TensorType):
            value.shape = ir.Shape(array.shape)
        elif not isinstance(value.type, ir.TensorType):
            value.shape = None
    shapes.infer(model)
    if lower_contrib(model):
        shapes.infer(model)
    lower_gradients(model)
    return no_recompute(flatten(model)), model


def _has_kernel(domain: str, op: str, version: int) -> bool:
    return registry.find(domain, op, version) is not None


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    if not isinstance(inputs, Mapping):
        values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(values) > len(names):
            raise UsageError(f"{len(values)} inputs are given, the model takes {len(names)}")
        inputs = dict(zip(names, values, strict=False))
    missing = [name for name in names if name not in inputs]
    if missing:
        raise UsageError(f"the model's input {missing[0]!r} is not given")
    return {name: _array(inputs[name]) for name in names}


def _array(value: Any) -> Any:
    """A tensor as an array; sequences and absent optional values as they are."""
    return value if value is None or isinstance(value, (list, np.ndarray)) else np.asarray(value)


def _type(array: np.ndarray[Any, Any]) -> onnx.TypeProto:
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnx.helper.make_tensor_type_proto(kind, array.shape)


def _key(value: Any) -> Any:
    return (value.shape, value.dtype.name) if isinstance(value, np.ndarray) else type(value)


class GradtoolBackend(Backend):
    """All of ONNX that has a kernel, on the CPU."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:  # noqa: ARG003
        """Whether the device is one of ours; what has no kernel fails in `prepare` or `run`."""
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:  # noqa: ARG003
        """A model, ready to be run many times.

        Raises:
            ModelError: the model is not valid.
            UsageError: the device is another one than the CPU, or an operator has no kernel.
        """
        if not cls.supports_device(device):
            raise UsageError(f"this backend runs on the CPU, not on {device}")
        return Prepared(model)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,  # noqa: ARG003
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; `opset_version` is that of its domain, the newest if absent."""
        given = _by_name([name for name in node.input if name], inputs)
        newest = onnx.defs.get_schema(node.op_type, domain=node.domain).since_version
        standard = onnx.defs.onnx_opset_version()
        version = kwargs.get("opset_version", newest if node.domain else standard)
        imports = {"": standard} | {node.domain: version}
        types = {name: _type(array) for name, array in given.items()}
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        made = onnx.shape_inference.infer_node_outputs(schema, node, types)
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items()],
            [onnx.ValueInfoProto(name=name, type=made[name]) for name in node.output if name],
        )
        opsets = [onnx.helper.make_opsetid(domain, number) for domain, number in imports.items()]
        model = onnx.helper.make_model(graph, opset_imports=opsets)
        return cls.prepare(model, device).run(given)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the device is the CPU."""
        return device.partition(":")[0].upper() == "CPU"


is_compatible = GradtoolBackend.is_compatible
prepare = GradtoolBackend.prepare
run_model = GradtoolBackend.run_model
run_node = GradtoolBackend.run_node
supports_device = GradtoolBackend.supports_device
