"""Scalar inputs with a default: in memory noted in the metadata, in files initializers as well.

A runtime then takes inputs not fed from the file, and nothing computes with it ahead.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradtool.graph.training_info import TrainingInfo, record


def write_defaults(model: ir.Model) -> None:
    """Make initializers of the defaults, in place; their inputs stay inputs."""
    known = TrainingInfo.of(model).defaults
    for value in model.graph.inputs:
        if value.name in known and value.const_value is None and value.dtype is not None:
            array = np.asarray(known[value.name or ""], value.dtype.numpy())
            value.const_value = ir.Tensor(array, dtype=value.dtype, name=value.name)
            model.graph.register_initializer(value)


def take_defaults(model: ir.Model) -> None:
    """Undo `write_defaults` in place: plain inputs again; a number in the file counts."""
    known = dict(TrainingInfo.of(model).defaults)
    for name, default in known.items():
        value = model.graph.initializers.get(name)
        if value is None or not value.is_graph_input() or value.const_value is None:
            continue
        held = value.const_value.numpy()
        if held.size == 1 and held.astype(np.float64) != np.asarray(default, held.dtype):
            known[name] = held.item()
        del model.graph.initializers[name]
        value.const_value = None
    if known:
        record(model, defaults=known)
