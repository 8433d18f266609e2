"""Real runs within half of keep's memory: measured peak, step time against keep, equal bits.

    python benchmarks/budget_runs.py [DIR] [NAME…] [--budget 50%] [--times 64] [--cost flops]

DIR holds a folder per model with `model.onnx` and its weights.  The leading size of every input is
made `--times` as large.  `any` is the least that any plan needs, whatever it computes again, as
proven for the graph: parameters, inputs, and its heaviest step.  Where the budget was not reached,
the least that was is used instead; `impossible` is said of a budget below `any`.
With `--cost time` extra work, and its bound, are shares of the time of a step, as measured first.
Steps of both plans take turns in one process; the least time of `--repeat` counts for each.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import gradtool as gt
from gradtool.api import read_inputs
from gradtool.errors import GradtoolError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.planning.plan import Plan
from gradtool.shapes import infer
from gradtool.workloads.budgets.limits import Budget
from gradtool.workloads.plans import workload

ROOT = Path(__file__).resolve().parents[1]
SHAPED = ("Reshape", "Expand")
NAMES = ("vgg16", "resnet18", "gpt2", "unet")
MIB = 1 << 20


def enlarged(path: Path, times: int) -> ir.Model:
    """A model whose inputs are so many times as long, and what it reshapes them to."""
    model = gt.load(path)
    batch = 0
    for value in model.graph.inputs:
        if value.const_value is None and value.shape is not None and len(value.shape):
            batch = int(value.shape[0])
            value.shape = ir.Shape([batch * times, *value.shape[1:]])
    for node in model.graph:
        if node.op_type in SHAPED:
            _lengthen(model, node, batch, times)
    for value in list(model.graph.initializers.values()):
        _repeat(value, batch, times)
    infer(model)
    return model


def _repeat(mask: ir.Value, batch: int, times: int) -> None:
    """Lay a stored mask of the batch out so many times."""
    if mask.dtype == ir.DataType.BOOL and mask.shape is not None and mask.const_value is not None:
        array = mask.const_value.numpy()
        if array.ndim > 1 and array.shape[0] == batch:
            longer = np.concatenate([array] * times)
            mask.const_value, mask.shape = ir.tensor(longer, name=mask.name), ir.Shape(longer.shape)


def _lengthen(model: ir.Model, node: ir.Node, batch: int, times: int) -> None:
    """Multiply the leading size that a node writes, where it is of the batch."""
    sizes = node.inputs[1]
    tensor = None if sizes is None else ir.convenience.get_const_tensor(sizes)
    if sizes is None or tensor is None:
        return
    target = tensor.numpy().copy()
    if target.size and target[0] > 0 and target[0] % batch == 0:
        target[0] *= times
        name = f"{sizes.name}_{node.name}_longer"
        made = ir.Value(name=name, const_value=ir.tensor(target, name=name))
        made.shape, made.dtype = ir.Shape(target.shape), tensor.dtype
        model.graph.register_initializer(made)
        node.replace_input_with(1, made)


def executor(model: ir.Model, arrays: dict[str, Any]) -> tuple[Executor, Plan]:
    """A model ready to step on the CPU."""
    plan = planned(model, {})
    made = Executor(plan, open_device("cpu"), parameters_of(model))
    for name, array in arrays.items():
        made.set_input(name, array)
    return made, plan


def seconds(executors: list[Executor], repeat: int) -> list[float]:
    """The least seconds of a step of each, which take turns."""
    least = [float("inf")] * len(executors)
    for _ in range(repeat):
        for number, each in enumerate(executors):
            start = time.perf_counter()
            each.step()
            least[number] = min(least[number], time.perf_counter() - start)
    return least


def row(path: Path, budget: str, times: int, repeat: int, cost: str) -> str:
    """One model in one line."""
    training = gt.grad(enlarged(path, times))
    try:
        found, met = gt.recompute(training, gt.Budget(budget), strategy="min-cut", cost=cost), True
    except GradtoolError:
        found, met = gt.recompute(training, gt.Budget("min"), strategy="min-cut", cost=cost), False
    arrays = read_inputs(training.model, "random")
    with np.errstate(all="ignore"):
        keep, kept = executor(training.model, arrays)
        less, plan = executor(found.model, arrays)
        keep.step()
        less.step()
        equal = all(
            np.array_equal(array.view(np.uint8), less.gradients()[name].view(np.uint8))
            for name, array in keep.gradients().items()
        )
        before, after = seconds([keep, less], repeat)
        peaks = [measure(each, 1).peak for each in (keep, less)]
    proof = found.proof
    assert proof is not None  # noqa: S101 - plans within a budget have one
    asked = Budget.of(budget).arena(workload(training.model))
    impossible = asked is not None and asked < proof.least
    reached = "met" if met else "impossible" if impossible else "not found"
    return (
        f"{path.parent.name:<10}{kept.peak / MIB:>9.1f}{plan.peak / MIB:>9.1f}"
        f"{100 * plan.peak / kept.peak:>7.1f}{100 * proof.least / kept.peak:>7.1f}  {reached:<10}"
        f"{peaks[0] / MIB:>10.1f}{peaks[1] / MIB:>9.1f}"
        f"{100 * proof.share(proof.extra):>8.2f}{100 * proof.share(proof.bound):>8.2f}"
        f"{before * 1e3:>10.1f}{after * 1e3:>9.1f}{after / before:>8.3f}"
        f"  {'equal' if equal else 'DIFFERENT'}"
    )


def main() -> int:
    """Parse, run, print; exit 1 if bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "zoo", type=Path, nargs="?", default=ROOT.parent / "shared" / "zoo" / "small"
    )
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--times", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cost", choices=["flops", "time"], default="flops")
    a = parser.parse_args()
    print(
        f"{'model':<10}{'keep MiB':>9}{'plan':>9}{'%':>7}{'any %':>7}  {'budget':<10}"
        f"{'measured':>10}{'plan':>9}{'extra %':>8}{'bound':>8}{'keep ms':>10}{'plan ms':>9}"
        f"{'ratio':>8}  gradients"
    )
    different = 0
    for name in a.names:
        line = row(a.zoo / name / "model.onnx", a.budget, a.times, a.repeat, a.cost)
        different += line.endswith("DIFFERENT")
        print(line, flush=True)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
