"""Nothing is written through what lies in the place of a file of ours, and nobody waits for it."""

import os
import resource
import signal
import zlib

import pytest
from planted import SCENES, Stage

from gradtool import cli

STEPS = [(scene, number) for scene in SCENES for number in range(len(SCENES[scene][1]))]
FILE = ("link", "dangling", "folder link", "hard link", "pipe", "folder")
FOLDER = ("folder link", "link", "dangling", "pipe")
LIMITS = (0, 40, 400, 4000, 40_000)  # bytes that a file may have


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def stage(base, kept, monkeypatch, capsys):
    for kind in ("cache", "state"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(base / "home" / kind))

    def run(arguments):
        capsys.readouterr()
        code = cli.run(arguments)
        stage.said = capsys.readouterr().err
        return code

    stage = Stage(base, run, kept)
    return stage


def plants(stage, scene, number):
    """What can be planted before a command, and as what; the variables of XDG name two folders."""
    last = len(SCENES[scene][1]) - 1
    found = {*stage.kept[scene, number], *stage.kept[scene, last]}
    for path in sorted(found - {"home/cache", "home/state"}):
        is_folder = any(other.startswith(f"{path}/") for other in stage.kept[scene, last])
        yield from ((path, kind) for kind in (FOLDER if is_folder else FILE))


def require_mannered(stage, command, code, where):
    """One line and a code that says so, if it did not work."""
    lines = [line for line in stage.said.splitlines() if line.startswith("gradtool: ")]
    judges = command.startswith(("check", "init"))  # cases may be in error, each with its line

    assert code in ((0, 1, 2) if judges else (0, 2)), f"{where}: exit {code}: {stage.said}"
    assert len(lines) == (code == 2) or (judges and not lines), f"{where}: {stage.said}"
    assert "Traceback" not in stage.said, where


def require_untouched(stage, scene, number, path, kind):
    stage.restore(scene, number)
    stage.plant(path, kind)
    before, command = stage.apart(), SCENES[scene][1][number]
    where = f"{path} is a {kind}: {command}"
    try:
        code = stage.give(command)
    except TimeoutError as error:
        raise AssertionError(f"{where}: {error}") from error

    assert stage.apart() == before, f"{where}: what it leads to has changed"
    require_mannered(stage, command, code, where)


def drawn(scene, number, among):
    """One of several, the same one every time."""
    return among[zlib.crc32(f"{scene} {number}".encode()) % len(among)]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("scene", "number"), STEPS)
def test_what_is_planted_is_left_alone(stage, scene, number):
    stage.restore(scene, number)

    require_untouched(stage, scene, number, *drawn(scene, number, [*plants(stage, scene, number)]))


@pytest.mark.sample(1, 2.5)
@pytest.mark.exhaustive
@pytest.mark.parametrize(("scene", "number"), STEPS)
def test_whatever_is_planted_is_left_alone(stage, scene, number):
    stage.restore(scene, number)
    for path, kind in [*plants(stage, scene, number)]:
        require_untouched(stage, scene, number, path, kind)


def test_the_scenes_write_every_file_of_a_fixed_name(stage):
    """What gradtool gives a name to, by where it is documented."""
    for scene in SCENES:
        stage.restore(scene, 0)
    found = {path for paths in stage.kept.values() for path in paths}

    for name in (
        "m.grad.onnx", "m.forward.onnx", "m.backward.onnx", "m.mirror.onnx", "m.recompute.onnx",
        "gradtool.toml", "gradtool-baseline/m.json", "m.trained.onnx", "m.ema.onnx",
        "m.lora.onnx", "m.lora.onnx_adapter", "m.train/metrics.jsonl", "m.train/plan.json",
        "m.train/step-00000004.json", "m.train/step-00000004.safetensors", "m.kit/manifest.json",
        "m.kit/step.onnx", "m.kit/eval.onnx", "m.kit/state.safetensors",
    ):  # fmt: skip
        assert f"work/{name}" in found, name
    assert {"home/state/gradtool/secret", "home/state/gradtool/last"} <= found
    assert "home/cache/gradtool/plans" in found


@pytest.mark.sample(1, 3)
@pytest.mark.parametrize(("scene", "number"), STEPS)
@pytest.mark.parametrize("most", [pytest.param(m, marks=pytest.mark.exhaustive) for m in LIMITS])
def test_a_full_disk_loses_nothing(stage, scene, number, most):
    require_whole(stage, scene, number, most)


@pytest.mark.parametrize("scene", SCENES)
def test_a_disk_that_gets_full_loses_nothing(stage, scene):
    number = len(SCENES[scene][1]) - 1

    require_whole(stage, scene, number, drawn(scene, number, LIMITS))


@pytest.mark.parametrize("scene", SCENES)
def test_a_read_only_folder_is_said(stage, scene):
    stage.restore(scene, 0)
    stage.work.chmod(0o500)
    if os.access(stage.work, os.W_OK):
        pytest.skip("who runs this may write everywhere")
    try:
        code = stage.give(SCENES[scene][1][0])
    finally:
        stage.work.chmod(0o700)

    require_mannered(stage, SCENES[scene][1][0], code, scene)


def require_whole(stage, scene, number, most):
    """Each file is that of before or that of after, and nothing half done lies about."""
    stage.restore(scene, number)
    before, command = contents(stage), SCENES[scene][1][number]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        code = stage.give(command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, former)
    found = contents(stage)
    said = stage.said
    stage.restore(scene, number)
    stage.give(command)
    after = contents(stage)

    stage.said = said
    require_mannered(stage, command, code, f"{most} bytes: {command}")
    for path, data in found.items():
        is_whole = data in (before.get(path), after.get(path))
        assert is_whole or f"kept in {path}" in said, f"{most} bytes: {command}: {path}"


def contents(stage):
    """The files that are whole or not there; a journal is cut where a run goes on."""
    return {
        str(path.relative_to(stage.work)): path.read_bytes()
        for path in stage.work.rglob("*")
        if path.is_file() and path.name != "metrics.jsonl"
    }
