"""Compiles the library of native kernels: `python native/build.py [PLATFORM | --is-built]`.

`--sanitize address` and `--sanitize thread` compile it for scripts/sanitize, which runs it with
the runtimes of gcc.

The compiler is the clang of the package ziglang, which builds for every platform on every
platform. Files of `base/` are compiled once, for any processor of their kind; files of `kernels/`
once for each instruction set. All become one library beside the Python that loads it.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = (
    *("-std=gnu11", "-O3", "-g0", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fno-sanitize=undefined"),
)
WATCHED = ("-O1", "-g", "-fno-omit-frame-pointer", "-Wno-pass-failed")
# What the runtimes of gcc know of each; those of threads see memset and its like by themselves.
SANITIZERS = {
    "address": ("-fsanitize=address", "-fsanitize=undefined"),
    "thread": ("-fsanitize=thread", "-mllvm", "-tsan-instrument-memintrinsics=0"),
}
X86 = {"v3": ("-mcpu=x86_64_v3",), "v4": ("-mcpu=x86_64_v4", "-mprefer-vector-width=512")}
ARM = {"neon": ()}


@dataclass(frozen=True)
class Platform:
    """One library: the compiler's target, the wheel's tag, and instruction sets with flags."""

    target: str
    tag: str
    instructions: dict[str, tuple[str, ...]]
    sanitizers: tuple[str, ...] = ()

    @property
    def system(self) -> str:
        """`linux`, `macos` or `windows`."""
        return self.target.split("-")[1].split(".")[0]


PLATFORMS = {
    "linux-x86_64": Platform(
        "x86_64-linux-gnu.2.17", "manylinux2014_x86_64.manylinux_2_17_x86_64", X86
    ),
    "linux-aarch64": Platform(
        "aarch64-linux-gnu.2.17", "manylinux2014_aarch64.manylinux_2_17_aarch64", ARM
    ),
    "macos-arm64": Platform("aarch64-macos.11.0", "macosx_11_0_arm64", ARM),
    "macos-x86_64": Platform("x86_64-macos.11.0", "macosx_11_0_x86_64", X86),
    "windows-amd64": Platform("x86_64-windows-gnu", "win_amd64", X86),
}


class BuildError(Exception):
    """What the compiler said, or that there is none, in one line or more."""


def here() -> str | None:
    """The platform of this Python; None where no library is built for it."""
    if sys.platform == "linux" and "musl" in (sysconfig.get_config_var("SOABI") or ""):
        return None
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, "")
    name = f"{system}-{platform.machine().lower()}"
    return name if name in PLATFORMS else None


def build(name: str, folder: Path | None = None) -> Path:
    """The library for the platform `name`, compiled anew if its sources have changed.

    It lies in `folder`, which has nothing else; where none is given, beside gradtool's Python.
    """
    sources = _sources()
    target = PLATFORMS[name]
    folder = folder or sources.FOLDER
    library = folder / f"libgradtool{sources.ENDINGS[target.system]}"
    if is_built(name, folder):
        return library
    with tempfile.TemporaryDirectory() as work:
        made = _compile(target, Path(work))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(made, library)
    (folder / sources.DIGEST).write_text(_made_from(name))
    return library


def is_built(name: str, folder: Path | None = None) -> bool:
    """Whether the library for a platform is there, made of these sources."""
    sources = _sources()
    folder = folder or sources.FOLDER
    library = folder / f"libgradtool{sources.ENDINGS[PLATFORMS[name].system]}"
    stamp = folder / sources.DIGEST
    return library.exists() and stamp.exists() and stamp.read_text() == _made_from(name)


def _made_from(name: str) -> str:
    return f"{_sources().digest(HERE)} {name}\n"


def _compile(target: Platform, work: Path) -> Path:
    with ThreadPoolExecutor() as pool:
        objects = list(pool.map(lambda unit: _object(target, work, *unit), _units(target)))
    library = work / f"libgradtool{_sources().ENDINGS[target.system]}"
    threads = () if target.system == "windows" else ("-lpthread", "-lm")
    if target.sanitizers:
        flags = [flag for flag in target.sanitizers if flag.startswith("-f")]
        _run(["gcc", *flags, "-shared", "-o", str(library), *map(str, objects), *threads])
        return library
    _zig(target, "-shared", "-s", "-o", str(library), *map(str, objects), *threads)
    return library


def _units(target: Platform) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Each C file, and how it is compiled: the instruction set's name and flags."""
    for path in sorted((HERE / "base").glob("*.c")):
        yield path, "base", ()
    for path in sorted((HERE / "kernels").glob("*.c")):
        for name, flags in target.instructions.items():
            yield path, name, flags


def _object(target: Platform, work: Path, path: Path, name: str, flags: tuple[str, ...]) -> Path:
    made = work / f"{path.stem}_{name}.o"
    if target.sanitizers:
        flags = (*flags, *target.sanitizers, *WATCHED)
    include = ("-I", str(HERE / "include"), f"-DGT_ISA={name}")
    _zig(target, *FLAGS, *flags, *include, "-c", str(path), "-o", str(made))
    return made


def _zig(target: Platform, *arguments: str) -> None:
    command = [sys.executable, "-P", "-m", "ziglang", "cc", "-target", target.target, *arguments]
    _run(command)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        if importlib.util.find_spec("ziglang") is None:
            raise BuildError(
                "no compiler for the native kernels: pip install ziglang, or set GRADTOOL_PURE=1 "
                "to build without them"
            )
        raise BuildError(done.stderr or done.stdout)


def _sources():  # noqa: ANN202 - a module
    path = HERE.parent / "gradtool" / "native" / "sources.py"
    spec = importlib.util.spec_from_file_location("gradtool_native_sources", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Build for the platform that is named, or for this one."""
    if sys.argv[1:] == ["--is-built"]:
        sys.exit((name := here()) is not None and not is_built(name))
    if sys.argv[1:2] == ["--sanitize"] and (name := here()) is not None:
        PLATFORMS[name] = replace(PLATFORMS[name], sanitizers=SANITIZERS[sys.argv[2]])
        print(build(name))
        return
    name = sys.argv[1] if len(sys.argv) > 1 else here()
    if name not in PLATFORMS:
        sys.exit(f"native/build.py: no library for {name or 'this platform'}; there is one for "
                 f"{', '.join(PLATFORMS)}")  # fmt: skip
    try:
        print(build(name))
    except BuildError as error:
        sys.exit(f"native/build.py: {error}")


if __name__ == "__main__":
    main()
