"""SHA-256 of what commands write, for a change that is meant to change no byte.

    python benchmarks/written.py [--files FILE…] > before.txt
    python benchmarks/written.py [--files FILE…] --vs before.txt

Without files: the samples. A command that refuses a file has its exit code instead. With `--vs`,
lines that differ are printed, and the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gradtool import cli

SAMPLES = Path(__file__).parents[1] / "samples"
COMMANDS = (
    "grad",
    "grad --optimizer adamw --clip-norm 1 --only-loss",
    "grad --optimizer momentum --grad-buffers",
    "grad --accumulate sum --train-mode",
    "grad --lora 4 --optimizer adam",
    "grad --head-grads",
    "grad --no-fuse-attention --functions --params-as-inputs",
    "grad --optimizer lion --split",
    "mirror",
    "mirror --kernels numpy",
    "recompute --strategy sqrt",
    "recompute --strategy min-cut",
    "recompute --strategy optimal",
)


def hashed(path: Path, words: list[str], folder: Path) -> str:
    """Digest of all files that a command makes, in the order of their names; or its exit code."""
    out = folder / "out"
    out.mkdir()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run([words[0], str(path), *words[1:], "--force", "-o", str(out / "made.onnx")])
    found = hashlib.sha256()
    for each in sorted(out.iterdir()):
        found.update(each.name.encode() + each.read_bytes())
        each.unlink()
    out.rmdir()
    return f"exit {code}" if code else found.hexdigest()


def lines(files: list[Path], folder: Path) -> Iterator[str]:
    """A line for each file and command."""
    for path in files:
        for command in COMMANDS:
            yield f"{hashed(path, command.split(), folder):64}  {path.name}  {command}"


def main() -> int:
    """Print the digests, or those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--vs", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ |= {"XDG_CACHE_HOME": place, "XDG_STATE_HOME": place}
        files = asked.files or sorted(SAMPLES.glob("*.onnx"))
        before = None if asked.vs is None else set(asked.vs.read_text().splitlines())
        count = differ = 0
        for line in lines(files, folder):
            count += 1
            if before is None or line not in before:
                differ += before is not None
                print(line, flush=True)
    if before is not None:
        print(f"{count} written files: {differ} differ from {asked.vs.name}")
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
