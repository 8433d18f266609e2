"""Child processes of this interpreter, none of which has the current folder in its path.

A child that runs a module of gradtool executes this file, without the path of a script: gradtool
is imported from where it lies, and nothing else that lies there is importable.

`PYTHONPATH` is kept but for its empty entries, which mean the current folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

PATH, SAFE = "PYTHONPATH", "PYTHONSAFEPATH"
# Builds of onnxruntime from 1.29 on note the metadata of models in the user's cache, to be sent.
PRIVATE = {"ORT_DISABLE_TELEMETRY": "1"}


def python(*arguments: str) -> list[str]:
    """The command line of this interpreter, as isolated as this process, and safe of path."""
    flags = sys.flags
    inherited = (["-E"] if flags.ignore_environment else []) + (
        ["-s"] if flags.no_user_site else []
    )
    return [sys.executable, *inherited, "-P", *arguments]


def running(module: str, *arguments: str) -> list[str]:
    """The command line of a child that runs a module of gradtool."""
    return python(os.path.abspath(__file__), module, *arguments)  # noqa: PTH100 - quick to import


def environment(**more: str) -> dict[str, str]:
    """The variables of a child: those of this process, with a safe path and without telemetry."""
    return {**PRIVATE, **os.environ, **more} | _safe()


@contextmanager
def safe_environment() -> Iterator[None]:
    """Children that others start meanwhile (`multiprocessing`) have a safe path as well."""
    safe = _safe()
    before = {name: os.environ.get(name) for name in safe}
    os.environ.update(safe)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def leave_out_current_folder() -> None:
    """Take the current folder out of this process's path where nobody named it."""
    sys.path[:] = [entry for entry in sys.path if entry]
    if sys.flags.ignore_environment or not os.environ.get(PATH):
        return
    given = os.environ[PATH].split(os.pathsep)
    here = os.getcwd()  # noqa: PTH109 - as Python itself writes it into its path
    if "" in given and here not in map(os.path.abspath, filter(None, given)):
        sys.path[:] = [entry for entry in sys.path if entry != here]


def _safe() -> dict[str, str]:
    entries = os.environ.get(PATH)
    safe = {SAFE: "1"}
    if entries:
        safe[PATH] = os.pathsep.join(filter(None, entries.split(os.pathsep)))
    return safe


def _begin() -> None:
    """Run the module that the first argument names, with the rest as its arguments."""
    import runpy
    from importlib.machinery import PathFinder

    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

    class Gradtool:
        """The finder of gradtool itself."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            """Its spec, and nobody else's."""
            del path, target
            return PathFinder.find_spec(name, [home]) if name == "gradtool" else None

    sys.meta_path.insert(0, Gradtool)  # type: ignore[arg-type]
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _begin()
