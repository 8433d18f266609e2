"""Every plan of every small model, run: equal bits, and the memory that was planned.

    python benchmarks/agreement.py [DIR] [NAME…] [--plans NAME,NAME…] [--ort] [--kernels native]
                                   [--device cuda]

DIR holds a folder per model with `model.onnx`, `inputs.npz` and `grads.npz`; the samples come
first.  Each plan is written into a model, saved, loaded and run: gradients must have the bits of
`keep`, the file must take the planned peak, the last arena byte touched must be that of the plan
(padding aside), and what lies beside the arena at most 1 % + 256 KiB.  Dead buffers are poisoned.
With `--ort` stock onnxruntime runs each file with its default options, with barriers and without;
`clones` counts those left in its optimised model, of those in the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import gradtool as gt
from gradtool.exec import agreement
from gradtool.exec.feeds import sizes
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.bind_dims import bound
from gradtool.program.flatten import flatten
from gradtool.workloads import plans
from gradtool.workloads.strategies import STRATEGIES

ROOT = Path(__file__).resolve().parents[1]
TOLERANCE = 1e-3
WORKER = """
import json, sys, numpy as np, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
options.optimized_model_filepath = sys.argv[3]
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = np.load(sys.argv[2])
names = [o.name for o in session.get_outputs()]
taken = {i.name: feeds[i.name] for i in session.get_inputs()}
np.savez(sys.argv[4], **dict(zip(names, session.run(names, taken))))
model = onnx.load(sys.argv[3], load_external_data=False)
print(json.dumps(sorted(n.name for n in model.graph.node)))
"""


def cases(zoo: Path, names: list[str]) -> list[tuple[str, Path, Path, list[str] | None]]:
    """Name, model, inputs and what to differentiate by."""
    found: list[tuple[str, Path, Path, list[str] | None]] = [
        (p.stem, p, p.with_suffix(".npz"), None) for p in sorted((ROOT / "samples").glob("*.onnx"))
    ]
    for folder in sorted(p.parent for p in zoo.glob("*/grads.npz")):
        with np.load(folder / "grads.npz") as grads:
            found.append((folder.name, folder / "model.onnx", folder / "inputs.npz", grads.files))
    return [case for case in found if not names or case[0] in names]


def check(
    model: Path,
    data: Path,
    wrt: list[str] | None,
    chosen: list[str],
    *,
    ort: bool,
    kernels: str,
    device: str,
) -> list[str]:
    """One short text per plan."""
    with np.load(data) as loaded:
        feeds = {n: loaded[n] for n in loaded.files}
    forward = gt.load(model)
    training = gt.grad(bound(forward, sizes(forward, feeds)), wrt=wrt).model
    expected = gt.run(training, feeds, device=device, kernels=kernels)
    work = plans.workload(training, kernels=kernels)
    said = []
    for name in chosen:
        found = STRATEGIES[name](work)
        agreement.check(work, found, feeds, expected, device)
        with tempfile.TemporaryDirectory() as folder:
            said.append(name + _from_file(work, found, feeds, expected, Path(folder), ort=ort))
    return said


def _from_file(work: Any, found: Any, feeds: Any, expected: Any, folder: Path, *, ort: bool) -> str:
    """The written file: its peak, and with `ort` its gradients elsewhere."""
    model = plans.write(work, found)
    clones = {n.name for n in model.graph if n.metadata_props.get("gradtool.stage") == "recompute"}
    text = ""
    for barrier in (False, True) if ort else (False,):
        path = folder / f"{barrier}.onnx"
        gt.save(model, path, barrier=barrier)
        again = no_recompute(flatten(gt.load(path), kernels=work.kernels)).peak
        if again != found.plan.peak:
            raise RuntimeError(f"{found.name}: planned {found.plan.peak}, reloaded {again}")
        if ort and (clones or not barrier):
            worst, left = _in_onnxruntime(model, path, feeds, expected, clones, folder)
            text += f" {'barrier' if barrier else 'plain'} {worst:.0e} clones {left}/{len(clones)}"
    return text


def _in_onnxruntime(
    model: Any, path: Path, feeds: Any, expected: Any, clones: set[str], folder: Path
) -> tuple[float, int]:
    """The worst relative difference of a gradient, and how many clones were left."""
    np.savez(folder / "feeds.npz", **feeds)
    optimised, results = folder / "optimised.onnx", folder / "results.npz"
    command = [sys.executable, "-c", WORKER, path, folder / "feeds.npz", optimised, results]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"onnxruntime: {done.stderr.strip().splitlines()[-1][:200]}")
    names = json.loads(model.metadata_props["gradtool.gradients"])
    total = np.sqrt(sum(float(np.vdot(g, g)) for g in expected.gradients.values())) or 1.0
    worst = 0.0
    with np.load(results) as theirs:
        for value, gradient in expected.gradients.items():
            error = float(np.linalg.norm((theirs[names[value]] - gradient).ravel()))
            norm = float(np.linalg.norm(gradient.ravel()))
            worst = max(worst, error / (norm + 1e-4 * float(total)))
    if not worst <= TOLERANCE:
        raise RuntimeError(f"onnxruntime: a gradient is off by {worst:.1e}")
    nodes = set(json.loads(done.stdout.splitlines()[-1]))
    left = sum(any(n == c or n.startswith(f"{c}/") for n in nodes) for c in sorted(clones))
    return worst, left


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    zoo = ROOT.parent / "shared" / "zoo" / "small"
    parser.add_argument("zoo", type=Path, nargs="?", default=zoo)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--plans", default=",".join(STRATEGIES))
    parser.add_argument("--ort", action="store_true")
    parser.add_argument("--kernels", choices=("numpy", "native"), default="numpy")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    ort, device = arguments.ort, arguments.device
    kernels = "cupy" if device.startswith("cuda") else arguments.kernels
    passed = failed = 0
    for name, model, data, wrt in cases(arguments.zoo, arguments.names):
        try:
            chosen = arguments.plans.split(",")
            said = check(model, data, wrt, chosen, ort=ort, kernels=kernels, device=device)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the row
            failed += 1
            print(f"{name:<20} FAILED {type(error).__name__}: {str(error)[:160]}", flush=True)
        else:
            passed += 1
            print(f"{name:<20} {', '.join(said)}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
