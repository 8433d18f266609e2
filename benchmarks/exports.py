"""Fresh exports by torch.onnx through grad, mirror, recompute, run and check.

    python benchmarks/exports.py [NAME…] [--draws N] [--kinds KIND…] [--quick] [--keep DIR]

Every module of `export_modules.py` and of the other `export_*.py` is exported by every exporter
(`dynamo`; `raw`: dynamo without optimisation; `script`: TorchScript), static and with an open
batch, for inference and for training. What must hold of each: every command exits with 0, gradients
are those of torch's autograd in float64, ours and those of stock onnxruntime on the written file
(at its default options and with every optimisation off), a step takes no more than 1.01 times what
was planned and 256 KiB.
What an exporter cannot export is counted and left aside, and so is a file that onnxruntime does not
run, or to another mean than torch. Where an exporter folds a part of a parameter away
(BatchNormalization into a weight, a step from zeros into a constant), its gradient is not torch's:
onnxruntime's differences of the file decide.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import export_activations  # noqa: F401 - it registers
import export_architectures  # noqa: F401 - it registers
import export_functions  # noqa: F401 - it registers
import export_layers  # noqa: F401 - it registers
import export_vision  # noqa: F401 - it registers
import numpy as np
import onnx
import onnxruntime as ort
import torch
from export_modules import MODULES, Sizes
from onnx import numpy_helper
from torch import Tensor, nn

from gradtool import cli

KINDS = ("dynamo", "raw", "script")
SLACK = 256 * 1024
TOLERANCE = 2e-3
STEP = 1e-2
PLANS = (
    ("mirror",),
    *(("recompute", "--strategy", name) for name in ("reorder", "sqrt", "min-cut")),
    ("recompute", "--budget", "60%"),
)
_LEVEL = ort.GraphOptimizationLevel
LEVELS = (_LEVEL.ORT_ENABLE_ALL, _LEVEL.ORT_DISABLE_ALL)  # the first is the default
# A budget below what can be reached is refused, and the least that can be is said.
REFUSAL = "smallest budget known to suffice"


@dataclass
class Case:
    """One export, and what was found wrong with it."""

    name: str
    kind: str
    dynamic: bool
    training: bool
    draw: int
    ratio: float = 0.0
    changed: set[str] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    @property
    def label(self) -> str:
        """For people."""
        batch = "open batch" if self.dynamic else "static"
        return f"{self.name} {self.kind} {batch} {'train' if self.training else 'eval'} {self.draw}"


# What computes or is exported in another way when it trains.
MODAL = (nn.modules.batchnorm._BatchNorm, nn.Dropout, nn.MultiheadAttention, nn.RNNBase)  # noqa: SLF001 - it has no public name


def cases(names: list[str], kinds: list[str], draws: int) -> Iterator[Case]:
    """Every combination, in training where that makes a difference."""
    for draw in range(draws):
        for name in names:
            parts = MODULES[name](Sizes.drawn(draw))[0].modules()
            modes = (False, True) if any(isinstance(part, MODAL) for part in parts) else (False,)
            for kind in kinds:
                for dynamic in (False, True):
                    for training in modes:
                        yield Case(name, kind, dynamic, training, draw)


def export(case: Case, module: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> str:
    """Write the file; why not, where the exporter fails."""
    names = [f"x{i}" for i in range(len(inputs))]
    given: dict[str, Any] = {"input_names": names, "output_names": ["y"], "verbose": False}
    if case.kind == "script":
        given |= {"dynamo": False, "opset_version": 18}
        if case.training:
            given |= {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
        if case.dynamic:
            given["dynamic_axes"] = {name: {0: "batch"} for name in names}
    else:
        given |= {"dynamo": True, "optimize": case.kind == "dynamo", "external_data": False}
        if case.dynamic:
            batch = torch.export.Dim("batch", min=1, max=64)
            given["dynamic_shapes"] = (tuple({0: batch} for _ in names),)
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            torch.onnx.export(module, inputs, str(path), **given)
    except Exception as error:  # noqa: BLE001 - exporters fail in many ways
        return " ".join(str(error).split())[:100] or type(error).__name__
    return ""


def expected(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients, by torch in float64: of parameters by name and of inputs of floats."""
    state = {k: v.clone() for k, v in module.state_dict().items()}
    floats = [x.is_floating_point() for x in inputs]
    leaves = [x.double().requires_grad_() if f else x for x, f in zip(inputs, floats, strict=True)]
    module.double().zero_grad()
    torch.set_default_dtype(torch.float64)
    try:
        loss = module(*leaves).mean()
    finally:
        torch.set_default_dtype(torch.float32)
    loss.backward()
    found = {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}
    found |= {f"x{i}": x.grad.numpy() for i, x in enumerate(leaves) if x.grad is not None}
    module.zero_grad()
    module.float().load_state_dict(state)
    return float(loss), found


def call(*arguments: str) -> tuple[int, str, str]:
    """A command of gradtool, in this process: exit code and what it says."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.run(list(arguments))
    return code, out.getvalue(), err.getvalue()


def examine(case: Case, folder: Path, plans: Sequence[tuple[str, ...]] = PLANS) -> str:
    """Export and try everything; why it was not exported, if it was not."""
    torch.manual_seed(case.draw)
    module, inputs = MODULES[case.name](Sizes.drawn(case.draw))
    module.train(case.training)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    path = folder / "model.onnx"
    problem = export(case, module, inputs, path)
    if problem:
        return problem
    problem = _unlike(path, module, inputs, training=case.training)
    if problem:
        return problem
    np.savez(folder / "in.npz", **{f"x{i}": x.numpy() for i, x in enumerate(inputs)})
    sizes = ["--batch", str(len(inputs[0]))] if case.dynamic else []
    floats = [f"--input-grad=x{i}" for i, x in enumerate(inputs) if x.is_floating_point()]
    common = [str(path), "--loss", "mean:y", *floats]
    if _try(case, "grad", *common, "-o", str(folder / "g.onnx"), "--force"):
        _stock(case, folder, module, inputs)
    _step(case, folder, common, module, inputs)
    for plan in plans:
        output = folder / f"{plan[0]}.onnx"
        if _try(case, *plan, *common, *sizes, "-o", str(output), "--force"):
            _step(case, folder, [str(output)], module, inputs)
    _check(case, folder, sizes)
    return ""


def _unlike(path: Path, module: nn.Module, inputs: tuple[Tensor, ...], *, training: bool) -> str:
    """Why a file is none that the module is judged by: onnxruntime's forward pass is another."""
    try:
        feeds = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
        (y,) = _session(path, LEVELS[1]).run(["y"], feeds)
    except Exception as error:  # noqa: BLE001 - its errors have no common base
        return f"onnxruntime does not run it: {' '.join(str(error).split())[:100]}"
    found = float(np.mean(y, dtype=np.float64))
    wanted = [expected(module.train(mode), inputs)[0] for mode in (training, False)]
    module.train(training)
    if min(abs(found - w) for w in wanted) <= TOLERANCE * max(abs(wanted[0]), 1e-2):
        return ""
    return f"its mean is {found:.4g} in onnxruntime, {wanted[0]:.4g} in torch"


def _try(case: Case, command: str, *arguments: str) -> str:
    code, out, err = call(command, *arguments)
    if code == 0:
        return out or "done"
    if REFUSAL not in err or code not in (1, 2):
        said = [line for line in err.splitlines() if line.startswith("gradtool: ")]
        case.wrong.append(f"{command} {' '.join(a for a in arguments if '/' not in a)}: exit {code}"
                          f": {(said or ['?'])[-1][:200]}")  # fmt: skip
    return ""


def _step(
    case: Case, folder: Path, model: list[str], module: nn.Module, inputs: tuple[Tensor, ...]
) -> None:
    """Run a step: its gradients against torch's, its memory against the plan."""
    grads = folder / "grads.npz"
    out = _try(
        case, "run", *model, "--inputs", str(folder / "in.npz"), "--measure", "--format", "json",
        "--save-grads", str(grads), "--force",
    )  # fmt: skip
    if not out:
        return
    said = json.loads(out)
    took, planned = said["measured"]["peak_bytes"], said["planned_bytes"]
    case.ratio = max(case.ratio, (took - SLACK) / planned)
    if took > 1.01 * planned + SLACK:
        case.wrong.append(f"{Path(model[0]).stem}: {took} bytes of {planned} planned")
    if said["measured"]["dynamic_bytes"] and not case.dynamic:
        case.wrong.append(f"{Path(model[0]).stem}: {said['measured']['dynamic_bytes']} not planned")
    with np.load(grads) as found:
        _compare(case, said["loss"], dict(found), module, inputs, folder / "model.onnx")


def _stock(case: Case, folder: Path, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Run the written file in stock onnxruntime."""
    feeds = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
    written = onnx.load(folder / "g.onnx", load_external_data=False)
    said = {entry.key: entry.value for entry in written.metadata_props}
    names = json.loads(said["gradtool.gradients"])
    for level in LEVELS:
        try:
            session = _session(folder / "g.onnx", level)
            wanted = {v.name: feeds[v.name] for v in session.get_inputs() if v.name in feeds}
            loss, *found = session.run([said["gradtool.loss"], *names.values()], wanted)
        except Exception as error:  # noqa: BLE001 - its errors have no common base
            case.wrong.append(f"stock {level.name}: {' '.join(str(error).split())[:200]}")
            continue
        gradients = dict(zip(names, found, strict=True))
        _compare(case, float(loss), gradients, module, inputs, folder / "model.onnx")


def _session(model: Path | bytes, level: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _compare(
    case: Case,
    loss: float,
    found: Mapping[str, np.ndarray],
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    path: Path,
) -> None:
    """Exporters may write a module in inference mode that was in training: either is right."""
    problems = []
    for training in (case.training, False):
        module.train(training)
        wanted, gradients = expected(module, inputs)
        module.train(case.training)
        errors = {"loss": abs(wanted - loss) / max(abs(wanted), 1e-2)}
        whole = np.sqrt(sum(float(np.vdot(g, g)) for g in gradients.values()))
        for name, gradient in gradients.items():
            if name in found and found[name].shape == gradient.shape:
                distance = float(np.linalg.norm(found[name] - gradient))
                error = distance / (float(np.linalg.norm(gradient)) + 1e-3 * whole)
                if error > TOLERANCE and is_of_file(path, inputs, name, found[name], gradient):
                    case.changed.add(name)
                else:
                    errors[name] = error
        worst = max(errors, key=lambda n: np.nan_to_num(errors[n], nan=np.inf))
        if errors[worst] <= TOLERANCE:
            return
        problems.append(f"{worst} is off by {errors[worst]:.1e}")
    case.wrong.append(problems[0])


def is_of_file(
    path: Path, inputs: tuple[Tensor, ...], name: str, mine: np.ndarray, other: np.ndarray
) -> bool:
    """Whether differences of a file bear out one gradient against another, where these differ."""
    model = onnx.load(path)
    weights = [w for w in model.graph.initializer if w.name == name]
    apart = (mine - other).astype(np.float64)
    distance = float(np.linalg.norm(apart))
    if not weights or not distance:
        return False
    held, losses = numpy_helper.to_array(weights[0]), []
    for step in (STEP, -STEP):
        moved = (held + step * apart / distance).astype(held.dtype)
        weights[0].CopyFrom(numpy_helper.from_array(moved, name))
        session = _session(model.SerializeToString(), LEVELS[0])
        feeds = {f"x{i}": x.numpy() for i, x in enumerate(inputs)}
        losses.append(float(np.mean(session.run(["y"], feeds)[0], dtype=np.float64)))
    slope = (losses[0] - losses[1]) / (2 * STEP)
    return abs(slope - float(np.vdot(mine, apart)) / distance) < distance / 4


def _check(case: Case, folder: Path, sizes: list[str]) -> None:
    """Write baselines, and hold the model against them."""
    options = f"\nbatch = {sizes[1]}" if sizes else ""
    config = folder / "gradtool.toml"
    config.write_text(f'[[case]]\nname = "c"\nmodel = "model.onnx"\nloss = "mean:y"{options}\n')
    _try(case, "--config", str(config), "check", "--update")
    _try(case, "--config", str(config), "check")


def main() -> int:
    """Examine what is asked for; a line for each export with something wrong, and a closing one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--keep", type=Path, help="a folder for the files with something wrong")
    parser.add_argument("--quick", action="store_true", help="plans that need no search only")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    worst = 0.0
    for case in cases(asked.names or list(MODULES), asked.kinds, asked.draws):
        with tempfile.TemporaryDirectory() as folder:
            problem = examine(case, Path(folder), PLANS[:3] if asked.quick else PLANS)
            if case.wrong and asked.keep:
                asked.keep.mkdir(exist_ok=True, parents=True)
                target = asked.keep / f"{case.label.replace(' ', '_')}.onnx"
                target.write_bytes((Path(folder) / "model.onnx").read_bytes())
        if problem:
            sys.stderr.write(f"{case.label}: left aside: {problem}\n")
        counts["left aside" if problem else "wrong" if case.wrong else "right"] += 1
        counts["changed"] += len(case.changed)
        worst = max(worst, case.ratio)
        for line in dict.fromkeys(case.wrong):
            print(f"{case.label}: {line}", flush=True)
    changed = f"{counts.pop('changed', 0)} parameters that an exporter changed"
    told = ", ".join(f"{counts[k]} {k}" for k in ("right", "wrong", "left aside"))
    print(f"{changed}: differences of the file decided")
    ratio = f"worst (measured - 256 KiB) / planned {worst:.3f}"
    print(f"{sum(counts.values())} exports: {told}; {ratio}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
