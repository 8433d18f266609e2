"""Seconds of processor time that commands take on files that ask for much of them.

    python benchmarks/bounded_time.py [KIND…] [--sizes 20,200] [--files FILE…] [--limit SECONDS]

Without files: graphs that join, add, cut and pad tensors whose sizes are all open, and graphs of
many small, deep or wide nodes (`tests/many_sizes.py`). Each command runs in a process of its own,
at its default options; where a file's sizes of 1 are too small, all that it assumes are 64.
`!` is an exit code other than 0, `>` a command that was stopped at the limit.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from many_sizes import KINDS, made

COMMANDS = {
    "grad": ("grad", "--force"),
    "report": ("report",),
    "mirror": ("mirror", "--report"),
    "recompute": ("recompute", "--strategy", "optimal", "--force"),
}
_ASSUMED = re.compile(r"assumed ([^\n(]+) \(give")


def seconds(words: list[str], cwd: Path, limit: int) -> tuple[float, int, str]:
    """Processor time of a command, its exit code (-24 or -9: stopped), and its messages."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gradtool", *words], check=False, cwd=cwd, text=True,
        capture_output=True,
        preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, (limit, limit)),
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    gone = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return gone, done.returncode, done.stderr + done.stdout


def timed(path: Path, command: str, cwd: Path, limit: int) -> tuple[float, str]:
    """The seconds of one command on one file, and a mark."""
    name, *flags = COMMANDS[command]
    gone, code, said = seconds([name, str(path), *flags], cwd, limit)
    assumed = _ASSUMED.search(said)
    if code == 2 and assumed is not None:
        dims = [f"--dim={each.partition('=')[0]}=64" for each in assumed[1].split(", ")]
        gone, code, said = seconds([name, str(path), *flags, *dims], cwd, limit)
    if code:
        print(f"  {name} {path.name}: {said.strip().splitlines()[-1:]}"[:200])
    return gone, ">" if code < 0 else "!" if code else " "


def files(asked: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """The files that are asked for, those of each kind written first."""
    if asked.files:
        yield from asked.files
        return
    for kind in asked.kinds or KINDS:
        for size in map(int, asked.sizes.split(",")):
            path = folder / f"{kind}-{size}.onnx"
            onnx.save(made(kind, size), path)
            yield path


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND")
    parser.add_argument("--sizes", default="20,120,200")
    parser.add_argument("--files", nargs="*", type=Path, default=[])
    parser.add_argument("--limit", type=int, default=60)
    asked = parser.parse_args()
    print(f"{'file':40}{'nodes':>7}" + "".join(f"{name:>11}" for name in COMMANDS), flush=True)
    slowest, count = 0.0, 0
    with tempfile.TemporaryDirectory() as place:
        for path in files(asked, Path(place)):
            nodes = len(onnx.load(path, load_external_data=False).graph.node)
            row = [timed(path.resolve(), name, Path(place), asked.limit) for name in COMMANDS]
            slowest, count = max(slowest, *(gone for gone, _ in row)), count + 1
            told = "".join(f"{gone:10.1f}{mark}" for gone, mark in row)
            print(f"{path.name[-39:]:40}{nodes:7}{told}", flush=True)
    print(f"{count} files x {len(COMMANDS)} commands: slowest {slowest:.1f} s of processor time")


if __name__ == "__main__":
    main()
