"""Ranks of a real MPI: they come to what one process comes to, and leave nothing when one dies."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import table_cases
from onnx.numpy_helper import to_array
from trainings import examples, lines, proto

from gradtool.ranks import launch
from gradtool.ranks.started import STARTED

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(TESTS.parent)}
PATIENCE = 60  # seconds until a test gives up

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


@pytest.fixture(autouse=True)
def mpi():
    """The `mpiexec` that mpi4py's MPI needs."""
    pytest.importorskip("mpi4py")
    try:
        return launch.starter(2)
    except launch.UsageError as error:
        pytest.skip(str(error))


@pytest.fixture
def net(tmp_path):
    onnx.save(proto(), tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", **examples(400))
    np.savez(tmp_path / "test.npz", **examples(21, 5))
    return tmp_path


def gradtool(folder, *given, under=()):
    """A command of gradtool that was started in a folder."""
    return subprocess.Popen(
        [*under, sys.executable, "-m", "gradtool", *given],
        cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def train(folder, name, *given, under=()):
    """Train in a folder; the outcome, and the journal."""
    process = gradtool(
        folder, "train", "net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.05",
        "--run", name, "-o", f"{name}.onnx", "--eval", "test.npz", *given, under=under,
    )  # fmt: skip
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out, lines(folder / name / "metrics.jsonl")


@pytest.mark.sample(1, 2.5)
@pytest.mark.parametrize("ordered", ["ordered", "as it comes"])
def test_sums_and_trainings_are_those_of_one_process(mpi, ordered):
    command = [*mpi, sys.executable, str(TESTS / "mpi_program.py"), ordered, "2"]
    outcome = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout.splitlines()[-1])

    assert found["odd"] == []
    assert found["worst"] < 1e-9
    assert found["tables"] < 1e-9
    assert all(right and same for right, same in found["sums"].values()), found["sums"]


def test_the_command_trains_by_itself_and_under_mpirun(net, mpi):
    out, alone = train(net, "one", "--steps", "50")
    told, two = train(net, "two", "--steps", "50", "--ranks", "2", "--deterministic")
    _, under = train(net, "under", "--steps", "50", "--deterministic", under=mpi)

    for how in ("optimizer", "gradients"):
        _, shard = train(
            net, how, "--steps", "50", "--ranks", "2", "--deterministic", "--shard", how
        )
        assert shard == two
        assert (net / f"{how}.onnx").read_bytes() == (net / "two.onnx").read_bytes()

    assert two == under
    assert (net / "two.onnx").read_bytes() == (net / "under.onnx").read_bytes()
    assert told.splitlines()[-1] == out.splitlines()[-1].replace("one.onnx", "two.onnx")
    for one, other in zip(alone, two, strict=True):
        assert one.keys() == other.keys()
        if "loss" in one:
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert not [p for p in net.iterdir() if p.suffix not in (".npz", ".onnx") and p.is_file()]


@pytest.mark.slow
def test_the_command_trains_a_table_of_which_ranks_have_rows(net):
    model, data, _, _ = table_cases.drawn(0)
    onnx.save(model, net / "net.onnx")
    np.savez(net / "data.npz", **data)
    np.savez(net / "test.npz", **data)
    how = ("--steps", "20", "--optimizer", "adagrad", "--sparse")
    _, alone = train(net, "one", *how)
    cut = (*how, "--ranks", "2", "--shard-tables", "table*", "--deterministic")
    _, two = train(net, "two", *cut)
    _, again = train(net, "again", *cut, "--trace", "again.json")

    assert two == again
    events = json.loads((net / "again.json").read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0", "rank 1",
    }  # fmt: skip
    for one, other in zip(alone, two, strict=True):
        if "loss" in one:
            assert other["loss"] == pytest.approx(one["loss"], rel=1e-9)
    held, others = (onnx.load(net / f"{name}.onnx").graph.initializer for name in ("one", "two"))
    for one, other in zip(held, others, strict=True):
        np.testing.assert_allclose(to_array(other), to_array(one), rtol=1e-9, atol=1e-12)


@pytest.mark.sample(1, 2.5)
@pytest.mark.parametrize("ranks", [2, 4])
def test_stages_come_to_what_one_process_does(mpi, ranks):
    engine = [str(ranks) if word == "2" else word for word in mpi]
    command = [*engine, sys.executable, str(TESTS / "mpi_stages.py"), "2", "1"]
    outcome = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout.splitlines()[-1])

    assert found["odd"] == []
    assert found["worst"] < 1e-9


@pytest.mark.slow
def test_the_command_trains_in_stages_and_goes_on_without(net):
    parts = ("--steps", "50", "--micro-batches", "4")
    out, alone = train(net, "one", *parts)
    told, two = train(net, "two", *parts, "--ranks", "2", "--stages", "2")

    assert two == alone
    assert (net / "two.onnx").read_bytes() == (net / "one.onnx").read_bytes()
    assert told.splitlines()[-1] == out.splitlines()[-1].replace("one.onnx", "two.onnx")
    start = ("--steps", "20", "--micro-batches", "4", "--checkpoint-every", "10")
    train(net, "there", *start, "--ranks", "2", "--stages", "2")
    _, more = train(net, "there", *parts, "--checkpoint-every", "10", "--resume", "--force")
    assert [each for each in more if "loss" in each] == [each for each in two if "loss" in each]
    data = ("train", "net.onnx", "--data", "data.npz")
    asked = gradtool(net, *data, "--ranks", "2", "--stages", "3")
    assert asked.communicate(timeout=PATIENCE)[1] == (
        "gradtool: --stages 3 takes 3 ranks or a multiple of them, not 2\n"
    )


LATE = """
import atexit, os, pathlib, sys, time
from gradtool import cli
from gradtool.ranks.started import STARTED

def late():
    time.sleep(2)
    pathlib.Path("ended").touch()

if "1" in map(os.environ.get, STARTED):
    atexit.register(late)
cli.main(sys.argv[1:])
"""


def test_a_rank_may_end_long_after_the_others(net, mpi):
    outcome = subprocess.run(
        [*mpi, sys.executable, "-c", LATE, "train", "net.onnx", "--data", "data.npz", "--batch",
         "8", "--steps", "2", "-o", "late.onnx"],
        cwd=net, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr
    assert (net / "ended").exists()


@pytest.mark.slow
def test_replicas_of_stages_have_parts_of_the_state(net):
    parts = ("--steps", "10", "--micro-batches", "2", "--checkpoint-every", "5")
    ranks = ("--ranks", "4", "--stages", "2", "--shard", "optimizer", "--deterministic")
    _, alone = train(net, "one", *parts)
    _, two = train(net, "two", *parts, *ranks)
    pairs = [(a["loss"], b["loss"]) for a, b in zip(alone, two, strict=True) if "loss" in a]
    _, more = train(net, "two", "--steps", "15", *parts[2:], *ranks, "--resume", "--force")

    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-6)  # in float32
    assert more[: len(two)] == two


def test_what_goes_wrong_on_all_ranks_is_said_once(net):
    process = gradtool(net, "train", "net.onnx", "--data", "none.npz", "--ranks", "2")
    out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (2, "", "gradtool: none.npz: no such file\n")


LONG = ("train", "net.onnx", "--data", "data.npz", "--batch", "8", "--lr", "0.01", "--ranks", "2",
        "--deterministic", "--timeout", "3", "-q")  # fmt: skip


def ranks_in(place):
    """The processes that are ranks of a command there, by what their environment says."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes()
            there = (folder / "cwd").readlink() == place
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        words = [launch.MARKED, *STARTED]
        marked, *started = (f"\0{word}=".encode() in b"\0" + environment for word in words)
        if there and marked and any(started) and state != "Z":
            found.append(int(folder.name))
    return sorted(found)


def steps_of(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def trouble(folder, name, kind, rank, after, *more):
    """What a long training says whose rank is killed or stopped once it has gone on for a while."""
    process = gradtool(folder, *LONG, "--steps", "100000", "--checkpoint-every", "20", "--run",
                       name, "-o", f"{name}.onnx", "--resume", *more)  # fmt: skip
    before, end = steps_of(folder / name), time.monotonic() + PATIENCE
    while not list((folder / name).glob("step-*.json")) or steps_of(folder / name) == before:
        assert time.monotonic() < end, process.communicate(timeout=1)
        time.sleep(0.02)
    time.sleep(after)
    pids = ranks_in(folder)
    assert len(pids) == 2
    os.kill(pids[rank], kind)
    began = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 1, err
    assert err.count("\n") == 1, err
    assert not ranks_in(folder)
    return err, time.monotonic() - began


@pytest.mark.sample(1, 2.5)
@pytest.mark.parametrize(("kind", "said"), [
    (signal.SIGKILL, "rank {} died (signal 9) in step "),
    (signal.SIGSTOP, "rank {} did not come within 3 s, in step "),
])  # fmt: skip
@pytest.mark.parametrize(
    ("rank", "more"), [(0, ()), (1, ()), (1, ("--stages", "2", "--micro-batches", "4"))]
)
def test_a_rank_that_dies_or_hangs_ends_all_with_one_line(net, kind, said, rank, more):
    err, seconds = trouble(net, "run", kind, rank, 0.3, *more)

    assert said.format(rank) in err
    assert "--resume" in err
    assert seconds < 3 + 10


def killed_and_whole(folder, times, seed=0):
    """The bits of a training that was killed at random moments, and of one that was not."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(times):
        trouble(folder, "killed", signal.SIGKILL, rng.randrange(2), rng.random())
    steps = max(int(p.stem[5:]) for p in (folder / "killed").glob("step-*.json")) + 30
    found = []
    for name in ("killed", "whole"):
        process = gradtool(folder, *LONG, "--steps", str(steps), "--checkpoint-every", "20",
                           "--run", name, "-o", f"{name}.onnx", "--resume")  # fmt: skip
        _, err = process.communicate(timeout=10 * PATIENCE)
        assert process.returncode == 0, err
        found.append(
            ((folder / f"{name}.onnx").read_bytes(), lines(folder / name / "metrics.jsonl"))
        )
    return found


def test_a_killed_training_is_gone_on_with_to_the_bits(net):
    killed, whole = killed_and_whole(net, 2)

    assert killed == whole


@pytest.mark.slow
def test_one_that_was_killed_twenty_times_is(net):
    killed, whole = killed_and_whole(net, 20, seed=1)

    assert killed == whole


SLOW_DISK = """import os, time
fsync = os.fsync
os.fsync = lambda file: (time.sleep(0.7), fsync(file))
"""


@pytest.mark.sample(1, 2.5)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_ranks_once_the_checkpoint_is_written(net, number, monkeypatch):
    """However long that takes."""
    (net / "slow").mkdir()
    (net / "slow" / "sitecustomize.py").write_text(SLOW_DISK)
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", f"{net / 'slow'}{os.pathsep}{TESTS.parent}")
    process = gradtool(net, "train", "net.onnx", "--data", "data.npz", "--batch", "8", "--ranks",
                       "2", "--steps", "100000", "--run", "run", "-o", "out.onnx")  # fmt: skip
    end = time.monotonic() + PATIENCE
    while not steps_of(net / "run"):
        assert time.monotonic() < end, process.communicate(timeout=1)
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)

    assert process.returncode == 128 + number
    *_, told, last = err.splitlines()
    last_step = lines(net / "run" / "metrics.jsonl")[-1]["step"]
    assert told.startswith(f"stopped after step {last_step}, whose checkpoint is in run")
    assert last == "gradtool: interrupted"
    assert (net / "run" / f"step-{last_step:08}.json").exists()
    assert not ranks_in(net)
