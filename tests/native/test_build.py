import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradtool.native import sources

pytestmark = pytest.mark.skipif(not sources.TREE.is_dir(), reason="gradtool is installed without C")
ROOT = sources.TREE.parent


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_of_test", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def copied(tmp_path):
    """The build's own files in another place."""
    shutil.copytree(sources.TREE, tmp_path / "native")
    (tmp_path / "gradtool" / "native").mkdir(parents=True)
    shutil.copy(sources.__file__, tmp_path / "gradtool" / "native" / "sources.py")
    return tmp_path


def run(tmp_path, *arguments):
    return subprocess.run(
        [sys.executable, str(tmp_path / "native" / "build.py"), *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def hook(target, monkeypatch, **environment):
    module = pytest.importorskip("hatchling", reason="the build hook needs hatchling")
    assert module
    for name in ("GRADTOOL_PURE", "GRADTOOL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = load(ROOT / "hatch_build.py").NativeHook
    return made(str(ROOT), {}, None, None, str(ROOT / "dist"), target)


def test_a_wheel_asks_for_the_compiler(monkeypatch):
    (asked,) = hook("wheel", monkeypatch, GRADTOOL_PLATFORM="macos-arm64").dependencies()

    assert asked.startswith("ziglang")


@pytest.mark.parametrize(("target", "pure"), [("wheel", "1"), ("sdist", "0")])
def test_a_pure_wheel_and_an_sdist_ask_for_none_and_compile_nothing(monkeypatch, target, pure):
    made, data = hook(target, monkeypatch, GRADTOOL_PURE=pure), {}
    made.initialize("standard", data)

    assert made.dependencies() == []
    assert data == {}


def test_an_unknown_platform_is_one_line(monkeypatch):
    made = hook("wheel", monkeypatch, GRADTOOL_PLATFORM="plan9-mips")
    with pytest.raises(
        SystemExit, match=r"GRADTOOL_PLATFORM=plan9-mips: not one of linux-x86_64, "
    ):
        made.initialize("standard", {})


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is not None, reason="ziglang is here")
def test_without_a_compiler_the_failure_is_one_line(tmp_path):
    done = run(copied(tmp_path), "linux-x86_64")

    assert done.returncode == 1
    assert done.stderr == (
        "native/build.py: no compiler for the native kernels: pip install ziglang, or set "
        "GRADTOOL_PURE=1 to build without them\n"
    )


def test_a_platform_without_a_library_is_one_line(tmp_path):
    done = run(copied(tmp_path), "linux-riscv64")

    assert done.returncode == 1
    assert done.stderr.startswith("native/build.py: no library for linux-riscv64; there is one for")
    assert done.stderr.count("\n") == 1


def test_the_digest_follows_names_and_contents(tmp_path):
    tree = tmp_path / "native"
    tree.mkdir()
    seen = set()
    for name, text in (("a.c", "1"), ("a.c", "2"), ("b.h", "2"), ("b.h", "")):
        (tree / name).write_text(text)
        seen.add(sources.digest(tree))
    (tree / "notes.md").write_text("no source")

    assert len(seen) == 4
    assert sources.digest(tree) in seen


def test_every_platform_of_the_wheels_script_has_a_library():
    script = (ROOT / "scripts" / "wheels").read_text()
    (line,) = (line for line in script.splitlines() if line.startswith("for platform in"))

    assert line.removeprefix("for platform in ").removesuffix("; do").split() == list(
        load(sources.TREE / "build.py").PLATFORMS
    )


def test_the_sdist_has_what_the_build_needs():
    text = (ROOT / "pyproject.toml").read_text()

    assert '"/native", "/hatch_build.py"' in text
    assert os.access(ROOT / "scripts" / "wheels", os.X_OK)
    assert Path(sources.TREE / "build.py").is_file()
