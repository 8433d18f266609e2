"""The updates of an optimizer, behind the gradients of a training graph: a whole step in one file.

Parameters and the optimizer's state go in as initializers, their next values come out.  Gradients
are no outputs then, so that each is free as soon as its update has run.  The learning rate and the
other numbers are inputs that have a default; state is there from the start, as zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.stages import ROLES
from gradtool.graph.training_info import OptimizerInfo, TrainingInfo, add_defaults, record
from gradtool.io.zeros import Zeros
from gradtool.operators.low_bits import SLOTS
from gradtool.passes import clipping, sparse
from gradtool.passes.update_groups import Updates, is_matrix, targets
from gradtool.passes.update_kinds import Optimizer, kind_of
from gradtool.passes.update_numbers import LEARNING_RATE, Numbers
from gradtool.passes.update_rules import Target
from gradtool.passes.update_settings import Setting
from gradtool.text.words import some

LIMITS = ("clip_value", "clip_norm")
NOTHING: Mapping[ir.Value, ir.Value] = MappingProxyType({})


class Added(NamedTuple):
    """Appended updates.

    The outputs with next values by initializer, warnings for people, and the parameter of each
    state.
    """

    next: dict[str, str]
    said: list[str]
    of: dict[str, str]


def add_updates(
    op: Builder,
    asked: Updates,
    gradients: Mapping[ir.Value, Any],
    original: Callable[[ir.Value], ir.Value] = lambda x: x,
    together: Mapping[ir.Value, ir.Value] = NOTHING,
    others: Sequence[str] = (),
    ranks: int = 1,
) -> Added:
    """Append the update of each parameter.

    `gradients` maps initializers of known shape to their gradients, some of them by rows.  The new
    inputs, and their defaults, are noted in the metadata.  The role of a parameter (a matrix, a
    table) follows from the readers of its `original`, perhaps in another graph.  For parts of
    parameters, `together` has all gradients as they are whole, by anything with their names, and
    `others` are the parameters without a part.  A norm of all is that of as many `ranks`, which
    have other gradients each.

    Raises:
        UsageError: there is nothing to update, a shape is open, or the request is impossible.
    """
    optimizer, setting = kind_of(asked.optimizer, asked.optimizer_option)
    _require(op.model, asked.optimizer, gradients)
    chosen = targets(asked, gradients, decays="weight_decay" in setting,
                     matrix=lambda x: is_matrix(original(x)), others=others,
                     roles=op.model.meta.get(ROLES, {}))  # fmt: skip
    given = {x: g for x, g in gradients.items() if isinstance(g, sparse.Rows)}
    left = (target for target in chosen if target.x not in given)
    tables = [target for target in left if sparse.is_table(original(target.x))]
    by_rows = asked.sparse and (tables or not given)
    whole = _whole(asked, optimizer, setting, tables, gradients) if by_rows else {}
    setting = _with_limits(setting, asked)
    state: dict[str, str] = {}
    of: dict[str, str] = {}
    wide = any(v.dtype == ir.DataType.DOUBLE for v in gradients)
    with op.at(None, stage="update", source="", prefix="update"), op.arithmetic():
        numbers = Numbers(op, setting, ir.DataType.DOUBLE if wide else ir.DataType.FLOAT)
        groups = _groups(numbers, chosen, asked, state) if optimizer.counts(setting) else {}
        rows = given | {x: _by_rows(op, x, gradients[x]) for x, why in whole.items() if why is None}
        limited: dict[ir.Value, Any] = {
            x: rows[x].sums if x in rows else g for x, g in gradients.items()
        }
        if "clip_value" in setting:
            bound = numbers.input("clip_value")
            limited = clipping.clip_values(op, limited, bound)
            together = clipping.clip_values(op, together, bound)
        if "clip_norm" in setting:
            bound = numbers.input("clip_norm")
            limited = clipping.clip_norm(op, limited, bound, list(together.values()), ranks)
        for target in chosen:
            g = limited[target.x]
            g = replace(rows[target.x], sums=g) if target.x in rows else g
            own = groups.get(asked.epoch_of(target.x.name or ""), numbers)
            of |= _update(own, optimizer, target, g, state)
    _record(numbers, asked.optimizer, rows)
    said = [f"--sparse: {x.name} has a whole gradient: {why}" for x, why in whole.items() if why]
    return Added(state, said, of)


def _groups(
    numbers: Numbers, chosen: Sequence[Target], asked: Updates, state: dict[str, str]
) -> dict[int, Numbers]:
    """The numbers of parameters by the epoch from which on their steps count."""
    op = numbers.op
    numbers.count = _counted(op, "step", state)
    later = sorted({asked.epoch_of(target.x.name or "") for target in chosen} - {0})
    return {
        epoch: numbers.counting(_counted(op, f"step_of_epoch_{epoch + 1}", state))
        for epoch in later
    }


def _counted(op: Builder, name: str, state: dict[str, str]) -> ir.Value:
    """The number of a step, from 1 on, which state counts."""
    before: Any = zeros(op, name, ir.DataType.INT64, ())
    after: ir.Value = before + op.constant(1, ir.DataType.INT64)
    publish(op, before, after, state)
    return after


def _record(numbers: Numbers, name: str, rows: Iterable[ir.Value]) -> None:
    """Note the optimizer, its inputs and the tables updated by rows."""
    model, setting = numbers.op.model, numbers.setting
    inputs = {what: value.name or "" for what, value in numbers.inputs.items()}
    tables = tuple(x.name or "" for x in rows)
    add_defaults(model, numbers.defaults)
    record(
        model, optimizer=OptimizerInfo(name, inputs[LEARNING_RATE], inputs, tables, setting.fixed)
    )


def _whole(
    asked: Updates, optimizer: Optimizer, setting: Setting, tables: Sequence[Target],
    gradients: Mapping[ir.Value, ir.Value],
) -> dict[ir.Value, str | None]:  # fmt: skip
    """By table that may have rows for a gradient, the reason why it has none; None if it has."""
    if not tables:
        raise UsageError("--sparse changes nothing: Gather reads no parameter that is updated")
    found: dict[ir.Value, str | None] = {}
    for target in tables:
        why = _why_all_move(asked, optimizer, setting, target)
        found[target.x] = why or sparse.why_whole(target.x, gradients[target.x])
    return found


def why_all_move(asked: Updates, parameters: Sequence[ir.Value], x: ir.Value) -> str | None:
    """The reason why the update of a parameter, one of all, is of more than rows with a gradient.

    Raises:
        UsageError: there is no such optimizer, setting or parameter.
    """
    optimizer, setting = kind_of(asked.optimizer, asked.optimizer_option)
    chosen = targets(asked, parameters, decays="weight_decay" in setting)
    target = next(target for target in chosen if target.x is x)
    return _why_all_move(asked, optimizer, setting, target)


def _why_all_move(
    asked: Updates, optimizer: Optimizer, setting: Setting, target: Target
) -> str | None:
    if optimizer.by_rows is None or "momentum" in setting:
        return f"{asked.optimizer} moves rows without a gradient"
    if target.decays:
        return f"weight decay changes every row (--no-decay {target.x.name} leaves it out)"
    return None if asked.clip_norm is None else "--clip-norm needs the norm of whole gradients"


def _by_rows(op: Builder, x: ir.Value, gradient: ir.Value) -> sparse.Rows:
    with op.at(None, stage="update", source="", prefix=f"{x.name}/rows"):
        return sparse.by_rows(op, x, gradient)


def _with_limits(setting: Setting, asked: Updates) -> Setting:
    """The setting of an optimizer, with the limits of gradients as further inputs."""
    limits = {name: getattr(asked, name) for name in LIMITS}
    given = {name: float(limit) for name, limit in limits.items() if limit is not None}
    return Setting({**setting.inputs, **given}, setting.fixed)


def _update(
    numbers: Numbers, optimizer: Optimizer, target: Target, gradient: Any, state: dict[str, str]
) -> dict[str, str]:
    """Append one; returns the parameter by its state."""
    op, x = numbers.op, target.x
    with op.at(None, stage="update", source="", prefix=f"{x.name}/update"):
        kept = optimizer.state(numbers.setting, target.extent)
        held = [zeros(op, f"{x.name}_{what}", target.dtype, sizes) for what, sizes in kept.items()]
        by_rows = isinstance(gradient, sparse.Rows)
        rule = optimizer.by_rows if by_rows and optimizer.by_rows else optimizer.rule
        made = rule(numbers, target, gradient, held)
        for old, new in zip((x, *held), made, strict=True):
            publish(op, old, new, state)
    return {v.name or "": x.name or "" for v in held}


def _require(model: ir.Model, name: str, gradients: Mapping[ir.Value, ir.Value]) -> None:
    if not gradients:
        coded = any(n.op_type in SLOTS and "bits" in n.attributes for n in model.graph)
        hint = "; --lora RANK trains adapters beside weights of few bits" if coded else ""
        raise UsageError(
            f"--optimizer {name}: no parameter among the values to differentiate by{hint}"
        )
    known = TrainingInfo.of(model).state
    updated = [v.name or "" for v in gradients if v.name in known]
    if updated:
        raise UsageError(f"--optimizer {name}: the model already updates {some(updated)}")
    open_ = [v.name or "" for v in gradients if v.shape is None or not v.shape.is_static()]
    if open_:
        raise UsageError(f"--optimizer {name}: the shape of {some(open_)} is open")


def zeros(op: Builder, name: str, dtype: ir.DataType, sizes: Sequence[int]) -> ir.Value:
    """A new initializer of zeros, which changes from step to step."""
    made = op.initializer(Zeros(dtype, tuple(sizes), op.names.fresh(name)))
    op.folding.never([made])
    return made


def publish(op: Builder, old: ir.Value, new: ir.Value, state: dict[str, str]) -> None:
    """Return a next value as `<name>_next`, and note it in `state`."""
    new.name = op.names.fresh(f"{old.name}_next")
    op.root.outputs.append(new)
    state[old.name or ""] = new.name
