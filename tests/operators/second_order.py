"""The gradient of a gradient of one operator, and finite differences of the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from cases import Case, Floats
from checkers import Feeds, differentiated, evaluate, step_and_bound

from gradtool.emit.builder import Builder
from gradtool.ops.driver import differentiate


def twice(case: Case) -> tuple[ir.Model, Feeds, list[str], dict[str, str]]:
    """The model of a case with its gradients, and the gradients of `Σ ⟨d, gradient⟩` by its inputs.

    Returns the model, its inputs, the names of the first gradients and, by input, of the second.
    """
    model, feeds, names = differentiated(case)
    first = evaluate(model, feeds)
    outputs = {v.name: v for v in model.graph.outputs}
    rng = np.random.default_rng(13)
    heads = {}
    for name in names:
        value = outputs[name]
        seed = ir.Value(name=f"d_{name}", shape=value.shape, type=value.type)
        model.graph.inputs.append(seed)
        feeds[seed.name] = rng.uniform(0.5, 1.5, first[name].shape)
        heads[value] = seed
    node_inputs = [v for v in model.graph.inputs if v.name.startswith(("x", "c_"))]
    wanted = {f"x{s}" for s, i in enumerate(case.inputs) if isinstance(i, Floats) and not i.fixed}
    wrt = [v for v in node_inputs if v.name in wanted or v.name.startswith("c_")]
    made = differentiate(Builder(model), heads, wrt)
    second = {}
    for value, grad in made.gradients.items():
        result = Builder(model).Identity(grad)
        model.graph.outputs.append(result)
        assert (grad.dtype, result.dtype) == (value.dtype, value.dtype)
        second[value.name] = result.name
    return model, feeds, names, second


def check_second_order(case: Case) -> float:
    """Second gradients against five-point differences of the first, in float64.

    Returns the largest relative error of `⟨gradient, direction⟩`, over the inputs.
    """
    model, feeds, _, second = twice(case)
    names_of_values = [v.name for n in model.graph for v in n.outputs if v.name]
    assert len(names_of_values) == len(set(names_of_values))
    found = evaluate(model, feeds)
    h, bound = step_and_bound(model, found)
    forward, _, names = differentiated(case)
    seeds = {n: feeds[f"d_{n}"] for n in names}
    rng = np.random.default_rng(17)
    worst = 0.0
    for source, name in second.items():
        direction = rng.uniform(-1, 1, feeds[source].shape)
        slope, size = slope_of(forward, feeds, source, direction, seeds, h)
        mine = float(np.vdot(found[name], direction))
        scale = np.linalg.norm(found[name]) * np.linalg.norm(direction) + size * 1e-3 + 1e-9
        worst = max(worst, abs(mine - slope) / scale)
        assert worst < 10 * bound, f"{source}: {mine}, finite differences say {slope}"
    return worst


def slope_of(
    forward: ir.Model, feeds: Feeds, source: str, direction: Any, seeds: Feeds, h: float = 1e-3
) -> tuple[float, float]:
    """The derivative of `Σ ⟨seed, value⟩` along one input, and the size of that sum."""
    inputs = {k: v for k, v in feeds.items() if not k.startswith("d_")}

    def total(t: float) -> float:
        values = evaluate(forward, inputs | {source: inputs[source] + t * direction})
        return float(sum(np.vdot(values[n], d) for n, d in seeds.items()))

    slope = (8 * (total(h) - total(-h)) - (total(2 * h) - total(-2 * h))) / (12 * h)
    return slope, abs(total(0.0))
