"""A model with `training_info` as the graph of one training step.

The step is the graph followed by that of the algorithm, which may read its values.  The algorithm
binds an initializer to its value in the next step.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from gradtool.errors import ModelError
from gradtool.graph.training_info import TrainingInfo


def to_step(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model whose graph is one training step; a model without `training_info` is itself.

    `gradtool.state` in its metadata names, for each initializer that a step updates, the output
    with its new value.  Initializers keep the values of the file: `initialization` is left out.

    Raises:
        ModelError: there are several algorithms, or a binding names an unknown value.
    """
    if not model.training_info:
        return model
    if len(model.training_info) > 1:
        raise ModelError(
            f"has {len(model.training_info)} training algorithms; keep one training_info"
        )
    info = model.training_info[0]
    step = onnx.ModelProto()
    step.CopyFrom(model)
    del step.training_info[:]
    algorithm = info.algorithm
    for field in ("node", "input", "initializer", "value_info", "sparse_initializer"):
        getattr(step.graph, field).extend(getattr(algorithm, field))
    outputs = {value.name for value in step.graph.output}
    step.graph.output.extend(v for v in algorithm.output if v.name not in outputs)
    state = _state(step, info)
    _take(step, state)
    for key, text in TrainingInfo(state=state).texts().items() if state else ():
        step.metadata_props.add(key=key, value=text)
    return step


def _state(step: onnx.ModelProto, info: onnx.TrainingInfoProto) -> dict[str, str]:
    initializers = {tensor.name for tensor in step.graph.initializer}
    outputs = {value.name for value in step.graph.output}
    state: dict[str, str] = {}
    for binding in info.update_binding:
        if binding.key in state:
            raise ModelError(f"training_info updates {binding.key!r} twice")
        if binding.key not in initializers:
            raise ModelError(f"training_info updates {binding.key!r}, which is no initializer")
        if binding.value not in outputs:
            raise ModelError(f"training_info binds {binding.value!r}, which is no output")
        state[binding.key] = binding.value
    return state


def _take(step: onnx.ModelProto, names: Iterable[str]) -> None:
    """Let initializers be fed: those that are inputs have a default."""
    inputs = {value.name for value in step.graph.input}
    tensors = {tensor.name: tensor for tensor in step.graph.initializer}
    step.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, tensors[name].data_type, tensors[name].dims)
        for name in names
        if name not in inputs
    )


def initial_model(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A model for the initial values of the bindings of `training_info`.

    Its outputs have the names of the initializers.  None where there is nothing to compute.

    Raises:
        ModelError: there are several algorithms, or a binding names an unknown value.
    """
    if len(model.training_info) != 1 or not model.training_info[0].initialization_binding:
        return None
    info = model.training_info[0]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.training_info[:]
    made.graph.CopyFrom(info.initialization)
    made.graph.name = made.graph.name or "initialization"
    values = {value.name: value for value in made.graph.output}
    del made.graph.output[:]
    for binding in info.initialization_binding:
        if binding.value not in values:
            raise ModelError(f"training_info binds {binding.value!r}, which is no output")
        made.graph.node.add(op_type="Identity", input=[binding.value], output=[binding.key])
        output = made.graph.output.add()
        output.CopyFrom(values[binding.value])
        output.name = binding.key
    return made
