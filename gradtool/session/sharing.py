"""Parameters that two sessions have in common: one tensor for both, in one arena."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.exec import feeds
from gradtool.exec.device import Device
from gradtool.exec.parameters import Parameters, parameters_of
from gradtool.exec.shared_arena import Store
from gradtool.graph.predicates import is_float, is_scalar
from gradtool.graph.training_info import TrainingInfo
from gradtool.session.held import StateAccess, is_only_updated
from gradtool.text.words import some


def store_of(models: tuple[ir.Model, ...], device: Device, other: StateAccess | None) -> Store:
    """The store of a session of some models, in the arena of another session if there is one.

    Raises:
        UsageError: that is closed, on another device, or has no parameter of the same name; or one
            has another type or shape there, or is a constant of only one of both graphs.
    """
    names = [name for model in models for name in model.graph.initializers]
    if other is None:
        return Store(device, names)
    store, theirs = other._store, other._models  # noqa: SLF001 - one session in another's arena
    if not other._is_open:  # noqa: SLF001 - likewise
        raise UsageError("share: that session is closed")
    if device.name != store.device.name:
        there = store.device.name
        raise UsageError(f"share: that session is on {there}: give device={there!r}")
    common = shared(models[0], theirs[0])
    if store.fix(common):
        other._plan_anew()  # noqa: SLF001 - likewise
    return store.beside(names, common)


def shared(model: ir.Model, other: ir.Model) -> Mapping[str, Parameters]:
    """The names that two models have in common, with the data of the other one.

    What stays as it is in both is shared if it is the same in both.
    """
    ours, theirs = _common(model), _common(other)
    moves = TrainingInfo.of(model).changing | TrainingInfo.of(other).changing
    here, there = parameters_of(model), parameters_of(other)
    kept: dict[str, Parameters] = {}
    for name in (name for name in ours if name in theirs):
        kinds = _kind(ours[name]), _kind(theirs[name])
        fixed = is_constant(model, name), is_constant(other, name)
        if name in moves and kinds[0] != kinds[1]:
            raise UsageError(
                f"share: {name!r} is {kinds[0]} here and {kinds[1]} there: give one another name"
            )
        if name in moves and fixed[0] != fixed[1]:
            raise UsageError(
                f"share: {name!r} changes in one graph and is a constant of the other one: only "
                "parameters of layers are shared where they are frozen"
            )
        if any(fixed) or kinds[0] != kinds[1]:
            continue
        if name in moves or here(name).tobytes() == there(name).tobytes():
            kept[name] = there
    if not kept:
        listed = [
            some(name for name in names if not is_constant(of, name)) or "none"
            for names, of in ((ours, model), (theirs, other))
        ]
        raise UsageError(f"share: no parameter in common: {listed[0]} here, {listed[1]} there")
    return kept


def is_constant(model: ir.Model, name: str) -> bool:
    """Whether programs hold an initializer, or may, not the place of parameters and state."""
    value = model.graph.initializers[name]
    if name in TrainingInfo.of(model).changing:
        return False
    return not is_float(value) or is_scalar(value) or feeds.decides(value, model)


def _common(model: ir.Model) -> dict[str, ir.Value]:
    """The tensors that a model may share: all but the state of its optimizer."""
    held = model.graph.initializers
    return {name: value for name, value in held.items() if not is_only_updated(model, name)}


def _kind(value: ir.Value) -> str:
    dtype = "" if value.dtype is None else value.dtype.name.lower()
    return f"{dtype}{list(value.shape or ())}"
