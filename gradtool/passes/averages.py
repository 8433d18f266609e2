"""Exponential means of parameters over the steps, kept as state beside them.

Source: `torch.optim.swa_utils.get_ema_multi_avg_fn` (PyTorch 2): `a + (x - a) · (1 - decay)` after
each update; unlike there, the mean begins as the parameter is before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.errors import UsageError
from gradtool.graph.names import Names
from gradtool.graph.stages import take_state
from gradtool.graph.training_info import TrainingInfo, record
from gradtool.operators.updates import drawn
from gradtool.passes.update_order import update_early


def add_averages(
    model: ir.Model, names: Iterable[str], decay: float, *apart: ir.Model
) -> dict[str, str]:
    """Give a model that updates parameters the mean of each of some, as `<name>_average`.

    Returns the parameter by its mean; the metadata `gradtool.averages` has the mean by it.  Names
    of means are new to the models `apart`, too.

    Raises:
        UsageError: the decay is no share.
    """
    if not 0 <= decay < 1:
        raise UsageError(f"the decay of an average is from 0 to below 1, not {decay}")
    graph, state = model.graph, dict(TrainingInfo.of(model).state)
    outputs = {v.name: v for v in graph.outputs}
    op = Builder(model, stage="update", names=Names.of(model, *apart))
    averages: dict[str, str] = {}
    with op.at(None, stage="update", source="", prefix="average"), op.arithmetic():
        for name in names:
            value, after = graph.initializers[name], outputs[state[name]]
            mean = ir.Value(
                name=op.names.fresh(f"{name}_average"), shape=value.shape, type=value.type,
                const_value=value.const_value,
            )  # fmt: skip
            graph.register_initializer(mean)
            op.folding.never([mean])
            made = drawn(mean, after, 1 - decay)
            made.name = op.names.fresh(f"{mean.name}_next")
            graph.outputs.append(made)
            state[mean.name or ""] = made.name
            averages[name] = mean.name or ""
    record(model, state=state, averages=averages)
    take_state(model)
    update_early(model)
    return {mean: name for name, mean in averages.items()}
