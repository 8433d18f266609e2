"""Ranks on this machine, started by an MPI's own `mpiexec` and looked after until they end.

Messages of engines about ranks that died differ; here it is one line.  So results go to a file,
ranks mark their lines on stderr, and anything else on either of the two is the engine's:

    ␞text           a line for people
    ␟begun R PID    rank R is a process
    ␟step R N       rank R begins step N

An engine that ends ranks may drop their last output, so the last line of the first one that ends
all is in a file as well, below its exit code.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradtool import child
from gradtool.errors import GradtoolError, Interrupted, UsageError
from gradtool.ranks.started import heard, missing

ENDED = "ended"  # the file with the last line
SAYS, TELLS = "\x1e", "\x1f"
MARKED = "GRADTOOL_MARKED"  # in the environment of ranks that are read here: where results go
_DEAD = re.compile(r"PID (\d+) RUNNING|rank (\d+) with PID|process rank (\d+)|,(\d+)\]\)")
_SIGNAL = re.compile(r"EXIT CODE: (\d+)|exited on signal (\d+)|signal (\d+)")


def run(arguments: Sequence[str], ranks: int, out: Callable[[bytes], object]) -> None:
    """Run a command of gradtool on some ranks; the output of rank 0 goes to `out`.

    Raises:
        UsageError: there is no MPI.
        GradtoolError: ranks ended before they were done.
        Interrupted: somebody asked for the end.
    """
    command = [*starter(ranks), *child.running("gradtool", *arguments)]
    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        results = Path(folder, "stdout")
        _Launched(command, ranks, results).run()
        out(results.read_bytes())


def starter(ranks: int) -> list[str]:
    """The command of mpi4py's MPI to start ranks here."""
    engine = _needs()
    places = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    path = os.pathsep.join([*places, os.environ.get("PATH", "")])
    found = shutil.which("mpiexec", path=path) or shutil.which("mpirun", path=path)
    if found is None:
        raise UsageError(missing("--ranks"))
    return [found, *engine, "-n", str(ranks)]


def _needs() -> list[str]:
    """The options that `mpiexec` of mpi4py's MPI needs to start ranks on a few cores.

    Asked in a process of its own: an MPI that is initialized here would be that of one rank.

    Raises:
        UsageError: mpi4py is missing, or finds no MPI.
    """
    code = "from mpi4py import MPI; print(MPI.get_vendor()[0])"
    found = subprocess.run(  # noqa: S603 - our own interpreter
        child.python("-c", code),
        env=child.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise UsageError(missing("--ranks"))
    if "Open MPI" not in found.stdout:
        return []
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["--oversubscribe", *(["--allow-run-as-root"] if is_root else [])]


@dataclass
class _Launched:
    """A command on ranks, and their known state."""

    command: Sequence[str]
    ranks: int
    results: Path
    pids: dict[int, int] = field(default_factory=dict)
    steps: dict[int, int] = field(default_factory=dict)
    noise: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)
    asked: int = 0

    def run(self) -> None:
        """Start it and wait until nothing of it is left."""
        self.results.touch()
        environment = child.environment(**{MARKED: str(self.results)})
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        environment.setdefault("OMP_NUM_THREADS", str(max(cores // self.ranks, 1)))
        process = subprocess.Popen(  # noqa: S603 - ourselves, by the installed MPI
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            with self._passing_on():
                self._read(process.stdout)
                code = process.wait()
        finally:
            self._end(process)
        self._judge(code)

    def _judge(self, code: int) -> None:
        ended = self.results.with_name(ENDED)
        text = ended.read_text(encoding="utf-8") if ended.exists() else ""
        number, _, line = text.partition("\n")
        if number:
            if line not in self.said:
                _show(line)
            raise Said(int(number))
        if code and self.asked:
            raise Interrupted(self.asked)
        if code:
            raise GradtoolError(self._death())

    def _death(self) -> str:
        """The rank that died, and its signal, by the engine's messages."""
        noise = " ".join(self.noise)
        dead, how = _DEAD.search(noise), _SIGNAL.search(noise)
        rank = None
        if dead is not None and dead[1]:
            rank = next((r for r, pid in self.pids.items() if pid == int(dead[1])), None)
        elif dead is not None:
            rank = int(next(filter(None, dead.groups())))
        who = "a rank" if rank is None else f"rank {rank}"
        by = next(filter(None, how.groups())) if how is not None else None
        step = self.steps.get(-1 if rank is None else rank, max(self.steps.values(), default=0))
        where = f"in step {step}" if step else "before the first step"
        said = f" (signal {by})" if by and by != "1" else ""
        return (
            f"{who} died{said} {where}, and all have ended: go on from the last checkpoint with "
            "--resume"
        )

    def _read(self, stream: Any) -> None:
        """Sort lines into messages of ranks, their marks and messages of the engine."""
        for raw in stream:
            line = raw.decode(errors="replace").rstrip("\n")
            said, told = line.find(SAYS), line.find(TELLS)
            if said >= 0:
                self.said.add(line[said + 1 :])
                _show(line[said + 1 :])
            elif told >= 0:
                self._note(line[told + 1 :].split())
            else:
                self.noise.append(line)

    def _note(self, words: list[str]) -> None:
        kind, numbers = words[0], [int(word) for word in words[1:]]
        if kind == "begun":
            self.pids[numbers[0]] = numbers[1]
        elif kind == "step":
            self.steps[numbers[0]] = numbers[1]

    @contextmanager
    def _passing_on(self) -> Iterator[None]:
        """Pass Ctrl-C to the ranks, which end after the step; asked twice, they end at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def ask(number: int, _frame: Any) -> None:
            if self.asked:
                raise Interrupted(number)
            self.asked = number
            for pid in self.pids.values():
                with suppress(OSError):
                    os.kill(pid, number)

        before = {number: signal.signal(number, ask) for number in heard()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Leave nothing behind: neither the engine's processes nor ranks."""
        if process.poll() is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in self.pids.values():
            with suppress(OSError):
                if _is_ours(pid):
                    os.kill(pid, signal.SIGKILL)


def _show(line: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


class Said(GradtoolError):
    """A rank has told its error."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.exit_code = code


def _is_ours(pid: int) -> bool:
    """Whether a process is still one of these: numbers are given anew."""
    try:
        return MARKED.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


class Marks(io.TextIOBase):
    """The stderr of a rank: whole lines, marked as ours."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._rest, self._last = stream, "", ""

    def write(self, text: str) -> int:
        """Write the complete lines so far."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._put(f"{SAYS}{line}")
            self._last = line or self._last
        return len(text)

    def tell_all(self, *words: object) -> None:
        """Something for who has started the ranks."""
        self._put(TELLS + " ".join(map(str, words)))

    def end_all(self, code: int) -> None:
        """End all ranks by this one, which has said why; the first who says so counts."""
        path = Path(os.environ[MARKED]).with_name(ENDED)
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(f"{code}\n{self._last}")

    def _put(self, line: str) -> None:
        os.write(self._stream.fileno(), f"{line}\n".encode(errors="replace"))

    def fileno(self) -> int:
        """The stream's file descriptor."""
        return int(self._stream.fileno())


def marks() -> Marks | None:
    """The marked stderr of this process, from now on; None where nobody reads marks.

    Its results go to the file that is read in the end.
    """
    path = os.environ.get(MARKED)
    if path is None:
        return None
    if not isinstance(sys.stderr, Marks):
        sys.stderr = Marks(sys.stderr)
        with open(path, "ab") as file:  # noqa: PTH123 - ruff's Path.open is the same
            os.dup2(file.fileno(), 1)
    assert isinstance(sys.stderr, Marks)  # noqa: S101 - set just now
    return sys.stderr
