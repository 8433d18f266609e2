"""Dropout whose mask is a function of a seed, a step, and an element's place in the batch.

Each gets a stream of its own by its place in the file.  Dropout may then run twice: a memory plan
draws the mask again in place of holding it, and the bits stay the same.  A batch that is computed
in parts of one size, one after the other or by several processes, draws the same numbers as a whole
one if its examples lie along the first axis: a part is told which one it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.randomness import NUMBERS, numbers_of
from gradtool.graph.training_info import TrainingInfo, add_defaults, record
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.passes.training_forms import stand_in

FIXED = 1 << 31  # set in the stream of a Dropout whose file gives it a seed


def count_draws(op: Builder, nodes: Sequence[ir.Node]) -> None:
    """Replace Dropouts of the main graph by counter-based ones with numbers per step, in place.

    They are scalar inputs with the default 0, whose names are noted in the metadata.
    """
    if not nodes:
        return
    numbers = {name: _input(op, f"dropout_{name}") for name in NUMBERS}
    draws = {name: value.name or "" for name, value in numbers.items()}
    add_defaults(op.model, dict.fromkeys(draws.values(), 0))
    record(op.model, draws=draws)
    for place, node in enumerate(nodes):
        _replace(op, node, _stream(node, place), list(numbers.values()))


def _stream(node: ir.Node, place: int) -> int:
    """A node's place, or its seed in the file: nodes with one seed draw alike."""
    seed = node.attributes.get_int("seed", -1)
    return place if seed < 0 else FIXED | seed % FIXED


def count_steps(model: ir.Model) -> str | None:
    """Let a training step count itself, in place: its number is state, no longer an input.

    Returns the name of the state; None if no number decides a mask.
    """
    name = numbers_of(model).get("step")
    if name is None:
        return None
    graph, info = model.graph, TrainingInfo.of(model)
    value = next(v for v in graph.inputs if v.name == name)
    graph.inputs.remove(value)
    value.const_value = ir.tensor(np.array(0, np.int64), name=name)
    graph.initializers.add(value)
    op = Builder(model, stage="update")
    with op.at(None, stage="update", source="", prefix="update"):
        after = op.Add(value, op.constant(1, ir.DataType.INT64))
    graph.outputs.append(after)
    defaults = {n: v for n, v in info.defaults.items() if n != name}
    draws = {n: v for n, v in info.draws.items() if n != "step"}
    state = {**info.state, name: after.name or ""}
    replace(info, defaults=defaults, draws=draws, state=state).write(model)
    return name


def _input(op: Builder, name: str) -> ir.Value:
    value = ir.Value(
        name=op.names.fresh(name), shape=ir.Shape(()), type=ir.TensorType(ir.DataType.INT64)
    )
    op.root.inputs.append(value)
    return value


def _replace(op: Builder, node: ir.Node, stream: int, numbers: Sequence[ir.Value]) -> None:
    x, ratio = as_tensor(node.inputs[0]), node.inputs[1] if len(node.inputs) > 1 else None
    with op.at(node, stage="forward", source="", prefix=node.name or ""), op.arithmetic():
        given = op.constant(0.5, x.dtype) if ratio is None else as_tensor(ratio)
        scale = _scale(op, given, x.dtype)
        mask = op.DropoutMask(op.shape(x), given, *numbers, stream=stream)
        y = op.DropoutGrad(mask, x, scale)
    stand_in((y, mask), node)


def _scale(op: Builder, ratio: Tensor, dtype: ir.DataType) -> Tensor:
    """`1 / (1 - ratio)`, a constant if the ratio is one: then only the mask reads it."""
    known = None if ratio.is_graph_input() else ir.convenience.get_const_tensor(ratio)
    if known is None:
        return op.Reciprocal(1.0 - op.cast(ratio, dtype))
    share = 1 - float(known.numpy().item())
    return op.constant(1 / share if share else math.inf, dtype)
