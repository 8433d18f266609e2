"""How many mutants of what plans and differentiates a few quick tests kill.

    python benchmarks/mutants.py [FILE ...] [--most 150] [--seed 0] [--examples 50]

See `mutating` for what a mutant is; of more than `--most` in a file, the seed draws so many.  Tests
are collected once; each mutant gets its code in a fork of that process, which runs them, the
quickest first, until one fails or takes too long; hypothesis tries `--examples` at most.  The tests
of a file, and why survivors compute the same, are in `mutants.toml`.  Exit code 1: below 90 %.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import resource
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryFile
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutating import Mutant, mutants

ROOT = Path(__file__).resolve().parent.parent
NAME = "_hypothesis_internal_use_settings"


class Run:
    """A pytest plugin that runs the collected tests once per mutant of a file."""

    def __init__(self, path: str, most: int, seed: int, examples: int) -> None:
        self.path, self.examples = str(ROOT / path), examples
        self.tree = ast.parse(Path(self.path).read_bytes())
        found = list(mutants(self.tree))
        self.all = len(found)
        drawn = random.Random(seed).sample(found, min(most, self.all))  # noqa: S311 - no secret
        self.drawn = sorted(drawn, key=lambda m: (m.line, m.told))
        self.survivors: list[Mutant] | None = None  # if the tests fail without a mutant
        self.functions: list[FunctionType] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        for test in {item.obj: None for item in items if hasattr(item.obj, NAME)}:
            most = min(getattr(test, NAME).max_examples, self.examples)
            setattr(test, NAME, settings(getattr(test, NAME), max_examples=most, phases=phases))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once, then each mutant in a fork of the process."""
        gc.unfreeze()
        with TemporaryFile() as told:
            if not _forked(lambda: _tested(session, told), 600):
                return True
            told.seek(0)
            modules, seconds = json.load(told)
        for module in modules:
            with suppress(Exception):
                import_module(module)
        session.items.sort(key=lambda item: seconds[item.nodeid])
        known = (o for o in gc.get_objects() if isinstance(o, FunctionType))
        self.functions = [f for f in known if f.__code__.co_filename == self.path]
        gc.freeze()
        limit = 3 + 3 * int(sum(seconds.values()))
        left = (m for m in self.drawn if _forked(lambda m=m: self._survives(m, session), limit))
        self.survivors = list(left)
        return True

    def _survives(self, mutant: Mutant, session: pytest.Session) -> bool:
        mutant.apply()
        codes = dict(_codes(compile(ast.fix_missing_locations(self.tree), self.path, "exec")))
        for function in self.functions:
            code = function.__code__
            function.__code__ = codes.get((code.co_qualname, code.co_firstlineno), code)
        return _tested(session)


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield (inner.co_qualname, inner.co_firstlineno), inner
            yield from _codes(inner)


def _forked(work: Callable[[], bool], seconds: int) -> bool:
    """Whether work says yes in a process of its own, within some seconds of computing."""
    if not (pid := os.fork()):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        passed = False
        try:
            passed = work()
        finally:
            os._exit(not passed)
    return os.waitpid(pid, 0)[1] == 0


def _tested(session: pytest.Session, told: Any = None) -> bool:
    """Whether all tests pass; a file is told what they import, and the seconds of each."""
    seconds = {}
    for item, after in zip(session.items, [*session.items[1:], None], strict=True):
        start = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        seconds[item.nodeid] = time.process_time() - start
        if session.testsfailed:
            return False
    if told is not None:
        told.write(json.dumps([list(sys.modules), seconds]).encode())
        told.flush()
    return True


def main() -> int:
    """Try the mutants of files; the exit code says whether too few were found."""
    files = tomllib.loads((ROOT / "benchmarks/mutants.toml").read_text())
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", default=list(files), metavar="FILE")
    for name, default in (("--most", 150), ("--seed", 0), ("--examples", 50)):
        parser.add_argument(name, type=int, default=default)
    asked, few = parser.parse_args(), 0
    for path in asked.files:
        run, start = Run(path, asked.most, asked.seed, asked.examples), time.perf_counter()
        with redirect_stdout(StringIO()):
            tests = [str(ROOT / test) for test in files[path]["tests"]]
            pytest.main(["-p", "no:cacheprovider", "-m", "not slow", *tests], plugins=[run])
        if run.survivors is None:
            sys.exit(f"the tests of {path} fail without a mutant")
        for line, told, *_ in run.survivors:
            why = files[path].get("same", {}).get(told, "survived")
            print(f"  {path}:{line} {told}  [{why}]")
        count, killed = len(run.drawn), len(run.drawn) - len(run.survivors)
        few += 10 * killed < 9 * count
        print(f"{path}: {killed} of {count} mutants killed, {100 * killed / count:.1f} %"
              f" ({run.all} in all; {time.perf_counter() - start:.0f} s)", flush=True)  # fmt: skip
    return bool(few)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
