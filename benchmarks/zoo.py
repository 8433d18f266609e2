"""`gradtool grad` on every full-size model of a zoo: seconds, node counts, validity.

    python benchmarks/zoo.py [DIR] [NAME…] [--json FILE]

DIR holds a folder per model with `model.onnx` and perhaps `model_dynbatch.onnx`; weights may be
absent.  Seconds are wall time of the whole command, interpreter start included.  What it writes
is checked by onnx's full checker, on a copy whose absent initializers are inputs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def checked(path: Path) -> str:
    """Empty if the model is valid, else the checker's reason."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    absent = [t for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    inputs = {i.name for i in model.graph.input}
    for tensor in absent:
        model.graph.initializer.remove(tensor)
        if tensor.name not in inputs:
            made = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            model.graph.input.append(made)
    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:  # noqa: BLE001 - whatever the checker says is the row
        return str(error).splitlines()[0][:80]
    return ""


def differentiated(model: Path, scratch: Path) -> dict[str, Any]:
    """One row: the command's seconds and counts, or why it failed."""
    output = scratch / "out.onnx"
    command = [
        sys.executable, "-m", "gradtool", "grad", str(model), "-o", str(output), "--force",
        "--format", "json",
    ]  # fmt: skip
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {"model": f"{model.parent.name}/{model.stem}", "seconds": seconds}
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("gradtool: ")]
        return row | {"error": (said or ["died"])[-1]}
    document = json.loads(done.stdout)
    problem = checked(output)
    return row | document["nodes"] | {"gradients": len(document["gradients"]), "checker": problem}


def main() -> int:
    """Parse, run, print; the exit code says whether a row failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "zoo", type=Path, nargs="?", default=ROOT.parent / "shared" / "zoo" / "full"
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows, failed = [], 0
    heads = f"{'forward':>8}{'loss':>6}{'backward':>9}{'grads':>7}{'seconds':>9}"
    print(f"{'model':<32}{heads}  checker")
    with tempfile.TemporaryDirectory() as scratch:
        for model in sorted(arguments.zoo.glob("*/*.onnx")):
            if arguments.names and model.parent.name not in arguments.names:
                continue
            row = differentiated(model, Path(scratch))
            rows.append(row)
            problem = row.get("error") or row["checker"]
            failed += bool(problem)
            counts = "".join(
                f"{row.get(k, '-'):>{w}}"
                for k, w in (("forward", 8), ("loss", 6), ("backward", 9), ("gradients", 7))
            )
            said = f"{row['model']:<32}{counts}{row['seconds']:>9.2f}  {problem or 'ok'}"
            print(said, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
