"""Reduce-scatter of gradients: each rank's part of the sums of all, as soon as they are final.

    sum ← sum + (gradient + those of the other ranks)[own]     once for each micro-batch

A whole gradient is gone when its part is taken.

Source: ZeRO, stage 2 (Rajbhandari et al. 2020), of which a collective is a step of the plan here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from gradtool.emit.builder import Builder
from gradtool.graph.prune import drop
from gradtool.graph.training_info import TrainingInfo
from gradtool.graph.typed import Tensor, as_tensor
from gradtool.io.zeros import Zeros
from gradtool.passes.update_order import update_early


def cut_sums(
    model: ir.Model, counts: Mapping[str, Sequence[int]], rank: int, *, whole: bool, ordered: bool
) -> ir.Model:
    """An `accumulating` graph whose sums are a rank's part of the sums over ranks.

    `counts` has by parameter how many of its elements each rank has, in order; one that has all of
    them gives the sum its shape if they are taken as a `whole`.  The model given is left as it is.
    """
    meta, model = model.meta, model.clone()
    model.meta.update(meta)
    graph = model.graph
    info = TrainingInfo.of(model)
    made_by, sums = info.gradients, info.of_next
    outputs = {v.name: place for place, v in enumerate(graph.outputs)}
    op, gone = Builder(model, stage="update"), list[ir.Node]()
    for name, parts in counts.items():
        place, total = outputs[made_by[name]], graph.initializers[sums[made_by[name]]]
        after, dtype = graph.outputs[place], total.dtype
        assert after.shape is not None and dtype is not None  # noqa: PT018, S101 - of a known sum
        shape = list(after.shape.numpy()) if whole and parts[rank] else [parts[rank]]
        gradient, adds = without(total, after)
        gone.append(adds)
        total.shape = ir.Shape(shape)
        total.const_value = Zeros(dtype, tuple(shape), total.name or "")
        op.folding.never([total])
        label, after.name = after.name, op.names.fresh(f"{name}/whole")
        with op.at(None, stage="update", source="", prefix=f"{name}/part"), op.arithmetic():
            part = op.RanksPart(
                gradient, counts=list(parts), rank=rank, shape=shape, ordered=int(ordered)
            )
            made = part + as_tensor(total)
        made.name = label
        graph.outputs[place] = made
    drop(gone)
    update_early(model)
    return model


def without(total: ir.Value, after: ir.Value) -> tuple[Tensor, ir.Node]:
    """The sum `after` without its term `total`, and the node adding it to a gradient."""
    ((adds, slot),) = total.uses()
    other, (result,) = as_tensor(adds.inputs[1 - slot]), adds.outputs
    if result is after:
        return other, adds
    result.replace_all_uses_with(other)
    return as_tensor(after), adds
