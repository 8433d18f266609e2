"""The gradient of a single-operator model by our kernels, against five-point differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from suite_models import Arrays, Test, prepared

from gradtool.emit.builder import Builder
from gradtool.exec.device import Device
from gradtool.exec.executor import Executor
from gradtool.exec.parameters import parameters_of
from gradtool.ops.driver import differentiate
from gradtool.passes.lower_updates import lower_updates
from gradtool.passes.training_forms import prepare
from gradtool.passes.widen import NARROW, WIDE, widen
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.flatten import flatten

Run = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Compared:
    """How differences are taken: step sizes, largest relative error, outputs that count."""

    steps: tuple[float, ...]
    tolerance: float
    types: tuple[ir.DataType, ...]


FINE = Compared((1e-3, 2.5e-4, 1e-5), 1e-6, (WIDE,))
COARSE = Compared((3e-2, 1e-2), 2e-3, (*NARROW, WIDE))


def differentiated(
    model: ir.Model, shapes_of: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, str], dict[str, str]]:
    """Append gradients: by input, the name of its gradient; by output, of its coefficient."""
    wrt = [v for v in model.graph.inputs if is_float(v)]
    op = Builder(model)
    prepare(model, op)
    lower_updates(op)
    heads, seeds = {}, {}
    for value in [v for v in model.graph.outputs if is_float(v)]:
        size = ir.Shape(shapes_of[value.name or ""])
        seed = ir.Value(name=f"c_{value.name}", shape=size, type=value.type)
        model.graph.inputs.append(seed)
        heads[value], seeds[value.name or ""] = seed, seed.name or ""
    made = differentiate(op, heads, wrt)
    names = {}
    for value, gradient in made.gradients.items():
        result = op.Identity(gradient)
        model.graph.outputs.append(result)
        names[value.name or ""] = result.name or ""
    return names, seeds


def is_float(value: ir.Value) -> bool:
    return value.dtype in (*NARROW, WIDE)


def runner(model: ir.Model) -> Run:
    """A function from inputs to outputs, by name, on our kernels."""
    executor = Executor(no_recompute(flatten(model)), Device("cpu", np), parameters_of(model))
    known = {v.name for v in model.graph.inputs}
    numbers = dict(
        zip((v.name or "" for v in model.graph.outputs), executor.program.outputs, strict=True)
    )

    def run(arrays: Mapping[str, Any]) -> dict[str, Any]:
        for name, array in arrays.items():
            if name in known:
                executor.set_input(name, array)
        executor.step()
        return {name: executor.result(number) for name, number in numbers.items()}

    return run


def agreement(test: Test) -> tuple[str, str, float]:
    """Whether gradients agree with differences, and the largest relative error."""
    narrow, arrays = prepared(test)
    model = widen(narrow)
    inputs = {v.name: v for v in model.graph.inputs}
    arrays = {k: _wide(a) if is_float(inputs[k]) else a for k, a in arrays.items()}
    if not any(is_float(v) for v in inputs.values()):
        return "constant", "no float input is data", 0.0
    tensors = [v for v in model.graph.outputs if isinstance(v.type, ir.TensorType)]
    if tensors and not any(is_float(v) for v in tensors):
        return "constant", "no output is a float", 0.0
    worst, where = 0.0, ""
    for precise in (True, False):
        if not any((v.dtype == WIDE) is precise for v in tensors):
            continue  # statistics that are float32 by definition are compared more coarsely
        rule = FINE if precise else COARSE
        for attempt in range(5):
            moved = _moved(model, arrays, attempt)
            error = _worst(model.clone(), moved, rule)
            if error is not None:
                break
        else:
            return "disagree", "no smooth point was found", np.inf
        if error > rule.tolerance:
            return "disagree", "", error
        worst = max(worst, error if precise else 0.0)
        where = "away from the numbers of the test, where it has a kink" if attempt else where
    return "agree", where, worst


def _wide(array: Any) -> Any:
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array


def _moved(model: ir.Model, arrays: Arrays, attempt: int) -> Arrays:
    """The arrays themselves at first, then each element a little elsewhere: up, down, either."""
    if not attempt:
        return arrays
    rng = np.random.default_rng(attempt)
    signs = ([-1, 1], [1], [-1], [-1, 1])[attempt - 1]
    names = [v.name or "" for v in model.graph.inputs if is_float(v)]
    return arrays | {
        k: arrays[k]
        + rng.uniform(0.02, 0.2, np.shape(arrays[k])) * rng.choice(signs, np.shape(arrays[k]))
        for k in names
    }


def _worst(model: ir.Model, arrays: Arrays, rule: Compared) -> float | None:
    """The largest relative error over all inputs; None where the loss has a kink."""
    forward = runner(model.clone())
    outputs = forward(arrays)
    names, seeds = differentiated(model, {k: np.shape(v) for k, v in outputs.items()})
    types = {v.name: v.dtype for v in model.graph.outputs}
    rng = np.random.default_rng(7)
    c = {}
    for name, seed in seeds.items():
        counts = np.isfinite(outputs[name]) & (types[name] in rule.types)
        drawn = rng.uniform(0.5, 1.5, outputs[name].shape)
        c[seed] = np.asarray(np.where(counts, drawn, 0.0), outputs[name].dtype)
    found = runner(model)(arrays | c)
    weights = {n: c[s] for n, s in seeds.items()}
    errors = [
        _difference(forward, arrays, weights, name, found[gradient], rule)
        for name, gradient in names.items()
    ]
    return None if None in errors else max((e for e in errors if e is not None), default=0.0)


def _difference(
    forward: Run,
    arrays: Arrays,
    weights: Mapping[str, Any],
    name: str,
    gradient: Any,
    rule: Compared,
) -> float | None:
    """The relative error along a random direction; None where the loss has a kink."""
    rng = np.random.default_rng(11)
    x = arrays[name]
    counts = np.isfinite(x)
    if not all(np.all(w) for w in weights.values()):  # where outputs are infinite, nothing is said
        counts &= np.isfinite(gradient)
        gradient = np.where(counts, gradient, 0.0)
    direction = np.where(counts, rng.uniform(-1, 1, x.shape), 0.0)

    def loss(t: float) -> float:
        made = forward(arrays | {name: x + t * direction})
        parts = [(np.asarray(made[n], np.float64), w) for n, w in weights.items()]
        return float(sum(np.sum(y * w, where=w != 0) for y, w in parts))

    def slope(h: float) -> float:
        return (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)

    def side(h: float) -> float:
        return (4 * loss(h) - loss(2 * h) - 3 * middle) / (2 * h)

    try:
        mine = float(np.sum(gradient * direction, where=direction != 0))
        middle = loss(0.0)
        scale = np.linalg.norm(gradient) * np.linalg.norm(direction) + abs(middle) * 1e-3 + 1e-9
        slopes = [slope(h) for h in rule.steps]
        sides = [side(h * rule.steps[-1]) for h in (1, -1)]
    except ValueError:  # the output has another shape a step further
        return None
    error = float(np.nanmin([abs(mine - s) / scale for s in slopes]))
    if error < rule.tolerance:
        return error
    spread = max(abs(s - slopes[0]) for s in (*slopes, *sides)) / scale
    return (
        error if spread < 10 * rule.tolerance or (not np.isfinite(error) and spread == 0) else None
    )
