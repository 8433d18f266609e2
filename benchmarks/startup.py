"""What a command takes before it works: processor time and modules, beside an earlier commit.

    python benchmarks/startup.py [COMMAND…] [--against 532aa24] [--runs 9]

The commit is checked out into a temporary folder, and its native library built there. Runs of both
alternate, children included (onnxruntime is asked about what is written), and the least of each
counts. A line each:

    grad: 0.61 of 0.77 s (ratio 0.79); modules 275 of 495, all 1231 of 1451; sympy 448, scipy 0
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = str(ROOT / "samples" / "cnn.onnx")
COMMANDS = {
    "help": ["--help"],
    "train-help": ["train", "--help"],
    "completion": ["gr"],
    "grad": ["grad", MODEL, "-o", "made.onnx", "--force"],
    "report": ["report", MODEL, "--batch", "8"],
    "mirror": ["mirror", MODEL, "--report", "--batch", "8"],
    "run": ["run", MODEL, "--batch", "8"],
}
COMPLETING = {"_GRADTOOL_COMPLETE": "bash_complete", "COMP_WORDS": "gradtool gr", "COMP_CWORD": "1"}
COUNTED = """
import atexit, sys
def count():
    tops = [name.partition(".")[0] for name in sys.modules]
    print(*map(tops.count, ("gradtool", "sympy", "scipy")), len(tops), file=sys.stderr)
atexit.register(count)
from gradtool.cli import main
main(sys.argv[1:])
"""
IMPORTED = """
import time
before = time.perf_counter()
import gradtool
print(time.perf_counter() - before)
"""


def checked_out(commit: str, folder: Path) -> Path:
    """A clone at a commit, with its native library if it can be built."""
    for command in (
        ["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(folder)],
        ["git", "-C", str(folder), "checkout", "-q", commit],
    ):
        subprocess.run(command, check=True)
    subprocess.run([sys.executable, "native/build.py"], cwd=folder, check=False)
    return folder


class Tree:
    """A checkout in which commands run."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run python in an empty folder, so that nothing of the checkout is found there."""
        more = {"PYTHONPATH": str(self.root), "OMP_NUM_THREADS": "1"}
        if name == "completion":
            more |= COMPLETING
        return subprocess.run(
            [sys.executable, "-P", *command], cwd=self.place, env={**os.environ, **more},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def seconds(self, name: str) -> float:
        """Processor time of a command and its children."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run(name, "-m", "gradtool", *COMMANDS[name])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise SystemExit(f"{self.root}: {name}: {done.stderr}")
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def modules(self, name: str) -> list[int]:
        """How many modules are there in the end: ours, sympy's, scipy's, all."""
        said = self.run(name, "-c", COUNTED, *COMMANDS[name]).stderr.splitlines()
        return [int(number) for number in said[-1].split()]

    def imported(self) -> float:
        """Milliseconds of `import gradtool`."""
        return 1000 * float(self.run("import", "-c", IMPORTED).stdout)


def main() -> None:
    """Print the processor time and the modules of each command, beside an earlier commit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(COMMANDS))
    parser.add_argument("--against", default="532aa24")
    parser.add_argument("--runs", type=int, default=9)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "place"
        place.mkdir()
        trees = [Tree(checked_out(asked.against, Path(folder) / "old"), place), Tree(ROOT, place)]
        for name in asked.commands or COMMANDS:
            taken = [min(each) for each in zip(*_turns(trees, name, asked.runs), strict=True)]
            counts = [tree.modules(name) for tree in trees]
            (before, _, _, all_before), (ours, sympy, scipy, every) = counts
            print(
                f"{name}: {taken[1]:.2f} of {taken[0]:.2f} s (ratio {taken[1] / taken[0]:.2f}); "
                f"modules {ours} of {before}, all {every} of {all_before}; "
                f"sympy {sympy}, scipy {scipy}",
                flush=True,
            )
        old, new = (min(tree.imported() for _ in range(asked.runs)) for tree in trees)
        print(f"import gradtool: {new:.1f} of {old:.1f} ms")


def _turns(trees: list[Tree], name: str, runs: int) -> list[list[float]]:
    """Seconds of both, one after the other; the first turn fills caches and does not count."""
    return [[tree.seconds(name) for tree in trees] for _ in range(runs + 1)][1:]


if __name__ == "__main__":
    main()
