"""What attention by blocks saves: kept for backward, planned, and taken by stock onnxruntime.

    python benchmarks/attention.py [--layers 6] [--width 256] [--heads 8] [--batch 8] [--tokens 256]

The model is the sample transformer at other sizes.  Each row is a process of its own; onnxruntime's
peak is beside inputs and weights.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
FORMS = {"plain": False, "by blocks": True}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 6), ("width", 256), ("heads", 8), ("tokens", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=FORMS, help="Measure one form, and print it as JSON.")
    return parser.parse_args()


def measured(asked: argparse.Namespace) -> dict[str, float]:
    """Bytes and seconds of a form."""
    sys.path.insert(0, str(HERE.parents[1] / "samples"))
    import transformer

    import gradtool as gt
    from gradtool.passes.residuals import residuals

    transformer.LAYERS, transformer.WIDTH, transformer.HEADS = (
        asked.layers, asked.width, asked.heads,
    )  # fmt: skip
    transformer.FEED, transformer.CONTEXT = 4 * asked.width, asked.tokens
    model = gt.load(transformer.model(), dims={"batch": asked.batch})
    training = gt.grad(model, loss="ce:logits", fuse_attention=FORMS[asked.only])
    shape = (asked.batch, asked.tokens)
    feeds = dict.fromkeys(("tokens", "labels"), np.ones(shape, np.int64))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.onnx"
        gt.save(training, path)
        taken = gt.run(gt.load(path), feeds, engine="ort", repeat=asked.repeat)
    ours = gt.run(training, feeds, repeat=asked.repeat)
    return {
        "kept for backward": residuals(training.model).bytes / 2**20,
        "planned": gt.plan(training).total / 2**20,
        "onnxruntime": (taken.ort_peak_bytes or 0) / 2**20,
        "onnxruntime s": taken.seconds,
        "ours s": ours.seconds,
    }


def main() -> None:
    """A row per form."""
    asked = parsed()
    if asked.only:
        sys.stdout.write(json.dumps(measured(asked)))
        return
    for form in FORMS:
        command = [sys.executable, str(HERE), *sys.argv[1:], "--only", form]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout)
        said = (f"{k} {v:.3g}" if k.endswith(" s") else f"{k} {v:.1f} MiB" for k, v in row.items())
        sys.stdout.write(f"{form:10} {'   '.join(said)}\n")


if __name__ == "__main__":
    main()
