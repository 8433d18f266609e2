"""The updates of an optimizer, behind the gradients of a training graph: a whole step in one file.

Parameters and the optimizer's state go in as initializers, their next values come out.  Gradients
are no outputs then, so that each is free as soon as its update has run.  The learning rate and the
other numbers are inputs that have a default; state is there from the start, as zeros.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.metadata import DEFAULTS, OPTIMIZER, STATE
from gradtool.io.zeros import Zeros
from gradtool.passes import clipping
from gradtool.passes.update_groups import Updates, is_matrix, targets
from gradtool.passes.update_kinds import Optimizer, kind_of
from gradtool.passes.update_numbers import LEARNING_RATE, Numbers
from gradtool.passes.update_rules import Target
from gradtool.passes.update_settings import Setting
from gradtool.text.words import some

LIMITS = {"clip_value": clipping.clip_values, "clip_norm": clipping.clip_norm}


def add_updates(
    op: Builder,
    asked: Updates,
    gradients: Mapping[ir.Value, ir.Value],
    matrix: Callable[[ir.Value], bool] = is_matrix,
) -> dict[str, str]:
    """Append the update of each parameter; returns the outputs with next values, by initializer.

    `gradients` maps initializers of known shape to their gradients.  The new inputs, and what they
    are where nobody gives them, are noted in the metadata.  What a `matrix` is some optimizers ask:
    who reads a parameter tells, perhaps in another graph.

    Raises:
        UsageError: there is nothing to update, a shape is open, or what is asked for cannot be.
    """
    optimizer, setting = kind_of(asked.optimizer, asked.settings)
    _require(op.model, asked.optimizer, gradients)
    chosen = targets(asked, gradients, decays="weight_decay" in setting, matrix=matrix)
    setting = _with_limits(setting, asked)
    state: dict[str, str] = {}
    wide = any(v.dtype == ir.DataType.DOUBLE for v in gradients)
    with op.at(None, stage="update", source="", prefix="update"), op.arithmetic():
        numbers = Numbers(op, setting, ir.DataType.DOUBLE if wide else ir.DataType.FLOAT)
        if optimizer.counts(setting):
            before = _zeros(op, "step", ir.DataType.INT64, ())
            numbers.count = before + op.constant(1, ir.DataType.INT64)
            _publish(op, before, numbers.count, state)
        limited: dict[ir.Value, Any] = dict(gradients)
        for name in (name for name in LIMITS if name in setting):
            limited = LIMITS[name](op, limited, numbers.input(name))
        for target in chosen:
            _update(numbers, optimizer, target, limited[target.x], state)
    props = op.model.metadata_props
    inputs = {what: value.name for what, value in numbers.inputs.items()}
    told = {"name": asked.optimizer, "lr": inputs[LEARNING_RATE], "inputs": inputs}
    props[OPTIMIZER] = json.dumps({**told, **setting.fixed})
    known = json.loads(props.get(DEFAULTS, "{}"))
    props[DEFAULTS] = json.dumps({**known, **numbers.defaults})
    return state


def _with_limits(setting: Setting, asked: Updates) -> Setting:
    """The setting of an optimizer, with the limits of gradients as further inputs."""
    limits = {name: getattr(asked, name) for name in LIMITS}
    given = {name: float(limit) for name, limit in limits.items() if limit is not None}
    return Setting({**setting.inputs, **given}, setting.fixed)


def _update(
    numbers: Numbers, optimizer: Optimizer, target: Target, gradient: Any, state: dict[str, str]
) -> None:
    op, x = numbers.op, target.x
    with op.at(None, stage="update", source="", prefix=f"{x.name}/update"):
        kept = optimizer.state(numbers.setting, target.extent)
        held = [_zeros(op, f"{x.name}_{what}", target.dtype, sizes) for what, sizes in kept.items()]
        made = optimizer.rule(numbers, target, gradient, held)
        for old, new in zip((x, *held), made, strict=True):
            _publish(op, old, new, state)


def _require(model: ir.Model, name: str, gradients: Mapping[ir.Value, ir.Value]) -> None:
    if not gradients:
        raise UsageError(f"--optimizer {name}: no parameter among the values to differentiate by")
    known = json.loads(model.metadata_props.get(STATE, "{}"))
    updated = [v.name or "" for v in gradients if v.name in known]
    if updated:
        raise UsageError(f"--optimizer {name}: the model already updates {some(updated)}")
    open_ = [v.name or "" for v in gradients if v.shape is None or not v.shape.is_static()]
    if open_:
        raise UsageError(f"--optimizer {name}: the shape of {some(open_)} is open")


def _zeros(op: Builder, name: str, dtype: ir.DataType, sizes: tuple[int, ...]) -> ir.Value:
    """A new initializer of zeros."""
    tensor = Zeros(dtype, sizes, op.names.fresh(name))
    made = ir.Value(
        name=tensor.name, shape=ir.Shape(sizes), type=ir.TensorType(dtype), const_value=tensor
    )
    op.root.register_initializer(made)
    op.folding.never([made])
    return made


def _publish(op: Builder, old: ir.Value, new: ir.Value, state: dict[str, str]) -> None:
    """Return a next value as `<name>_next`."""
    new.name = op.names.fresh(f"{old.name}_next")
    op.graph.outputs.append(new)
    state[old.name or ""] = new.name
