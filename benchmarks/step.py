"""Forward + backward step time as a ratio to PyTorch eager, interleaved in one process.

    python benchmarks/step.py [--zoo DIR] [--kernels native] [--threads 1,0] [--repeat 15]
                              [--json FILE]

Both sides run the same ONNX file; the gradients are compared before anything is timed.  A ratio
above 1 means slower than PyTorch.  `--threads 0` means all.  The zoo's models are timed when the
folder is there.  Kernels are `native`, `exact` or `numpy`; PyTorch runs operator by operator.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ("cnn", "transformer", "lstm")
ZOO = ("vgg16", "resnet18", "gpt2")


def rebatched(model: Any, factor: int) -> None:
    """Multiply the leading size of every input by `factor`; literal sizes in reshapes follow."""
    from onnx import numpy_helper

    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    for value in model.graph.input:
        dim = value.type.tensor_type.shape.dim[0]
        if dim.dim_value == batch:
            dim.dim_value = batch * factor
    shapes = {n.input[1] for n in model.graph.node if n.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in shapes:
            sizes = numpy_helper.to_array(tensor).copy()
            if -1 not in sizes and sizes[0] % batch == 0:
                sizes[0] *= factor
                tensor.CopyFrom(numpy_helper.from_array(sizes, tensor.name))
    del model.graph.value_info[:]


def prepared(name: str, factor: int, zoo: Path, scratch: Path) -> tuple[Path, dict[str, Any]]:
    """A forward model with its loss inside and inputs of `factor` times the batch."""
    import numpy as np
    import onnx

    folder = ROOT / "samples" if name in SAMPLES else zoo / name
    source = folder / (f"{name}.onnx" if name in SAMPLES else "model.onnx")
    data = folder / (f"{name}.npz" if name in SAMPLES else "inputs.npz")
    with np.load(data) as loaded:
        feeds = {n: loaded[n] for n in loaded.files}
    axis = 1 if name == "lstm" else 0
    feeds = {n: np.concatenate([a] * factor, axis=axis) for n, a in feeds.items()}
    model = onnx.load(source)
    if name in SAMPLES:
        with_loss(model)
    elif factor > 1:
        rebatched(model, factor)
    path = scratch / f"{name}-{factor}.onnx"
    onnx.save(model, path)
    return path, feeds


def with_loss(model: Any) -> None:
    """Append cross-entropy over the last axis of the first output."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    logits = model.graph.output[0]
    classes = logits.type.tensor_type.shape.dim[-1].dim_value
    rank = len(logits.type.tensor_type.shape.dim)
    shape = [d.dim_param or d.dim_value for d in logits.type.tensor_type.shape.dim][: rank - 1]
    model.graph.input.append(helper.make_tensor_value_info("labels", TensorProto.INT64, shape))
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array([-1, classes], np.int64), "flat_scores"),
            numpy_helper.from_array(np.array([-1], np.int64), "flat_labels"),
        ]
    )
    model.graph.node.extend(
        [
            helper.make_node("Reshape", [logits.name, "flat_scores"], ["scores_2d"]),
            helper.make_node("Reshape", ["labels", "flat_labels"], ["labels_1d"]),
            helper.make_node("SoftmaxCrossEntropyLoss", ["scores_2d", "labels_1d"], ["loss"]),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))


def compare(
    path: Path, feeds: dict[str, Any], threads: int, repeat: int, kernels: Any
) -> dict[str, float]:
    """Median seconds of a step on both sides, taken in turn, after checking the gradients."""
    import numpy as np
    import onnx
    import torch
    from torch_eager import Eager

    import gradtool as gt
    from gradtool.exec.device import open_device
    from gradtool.exec.executor import Executor
    from gradtool.exec.feeds import sizes
    from gradtool.exec.parameters import parameters_of
    from gradtool.program.bind_dims import bound

    if threads:
        torch.set_num_threads(threads)
    loaded = gt.load(path)
    training = gt.grad(bound(loaded, sizes(loaded, feeds)), loss="loss")
    plan = gt.plan(training, kernels=kernels)
    executor = Executor(plan, open_device("cpu"), parameters_of(training.model))
    for name, array in feeds.items():
        executor.set_input(name, array)
    wrt = list(training.gradients)
    eager = Eager(onnx.load(path))
    with np.errstate(all="ignore"):
        executor.step()
        _, expected = eager.gradients(feeds, "loss", wrt)
        ours = executor.gradients()
        total = float(np.sqrt(sum(float((g.double() ** 2).sum()) for g in expected)))
        worst = max(
            float(np.linalg.norm((ours[n] - g.numpy()).ravel()))
            / (float(g.double().norm()) + 1e-4 * total)
            for n, g in zip(wrt, expected, strict=True)
        )
        taken: dict[str, list[float]] = {"gradtool": [], "torch": []}
        for _ in range(repeat):
            start = time.perf_counter()
            executor.step()
            middle = time.perf_counter()
            eager.gradients(feeds, "loss", wrt)
            taken["gradtool"].append(middle - start)
            taken["torch"].append(time.perf_counter() - middle)
    return {
        "gradtool_seconds": float(np.median(taken["gradtool"])),
        "torch_seconds": float(np.median(taken["torch"])),
        "ratio": float(np.median(taken["gradtool"]) / np.median(taken["torch"])),
        "best_ratio": float(np.min(taken["gradtool"]) / np.min(taken["torch"])),
        "gradient_difference": worst,
    }


def child(arguments: argparse.Namespace) -> None:
    """One row, in a process whose thread counts were set before anything was imported."""
    with tempfile.TemporaryDirectory() as scratch:
        path, feeds = prepared(arguments.one, arguments.factor, arguments.zoo, Path(scratch))
        row = compare(path, feeds, arguments.count, arguments.repeat, arguments.kernels)
    print(json.dumps(row))


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zoo", type=Path, default=ROOT.parent / "shared" / "zoo" / "small")
    parser.add_argument("--kernels", choices=("native", "exact", "numpy"), default="native")
    parser.add_argument("--threads", default="1,0")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--factor", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        child(arguments)
        return 0
    names = [*SAMPLES, *(n for n in ZOO if (arguments.zoo / n).is_dir())]
    rows = []
    print(
        f"{'model':<14}{'batch':>6}{'threads':>9}{'gradtool':>12}{'torch':>12}{'ratio':>8}{'best':>8}"
    )
    for threads in (int(t) for t in arguments.threads.split(",")):
        rows += [measured(name, factor, threads, arguments) for name in names for factor in (1, 8)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(name: str, factor: int, threads: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one row in a child process and print it."""
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "benchmarks"))
    if threads:
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    else:
        environment = {k: v for k, v in environment.items() if not k.endswith("_NUM_THREADS")}
    command = [
        sys.executable, __file__, "--one", name, "--factor", str(factor), "--count", str(threads),
        "--repeat", str(arguments.repeat), "--zoo", str(arguments.zoo),
        "--kernels", arguments.kernels,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["died"])[-1]
        print(f"{name:<14}{factor:>5}x{threads or 'all':>9}  {reason}")
        return {"model": name, "factor": factor, "threads": threads, "error": reason}
    row = json.loads(done.stdout.splitlines()[-1])
    ours, theirs = row["gradtool_seconds"] * 1e3, row["torch_seconds"] * 1e3
    print(
        f"{name:<14}{factor:>5}x{threads or 'all':>9}{ours:>9.2f} ms{theirs:>9.2f} ms"
        f"{row['ratio']:>8.2f}{row['best_ratio']:>8.2f}",
        flush=True,
    )
    return {"model": name, "factor": factor, "threads": threads} | row


if __name__ == "__main__":
    sys.exit(main())
