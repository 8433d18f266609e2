"""A training and a kit, killed or refused at each call that changes files.

What was there is whole, and `--resume` ends in the bits of a training that was let alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile

import numpy as np
import onnx
import pytest
from conftest import GOLDEN
from interruptions import AWAY, Full, dies, fails, interrupted, loses
from kills import content, is_supported, refill, visible
from limited import ended, warm
from trainings import examples, proto

from gradtool.io import safetensors

pytestmark = pytest.mark.skipif(not is_supported(), reason="needs processes that fork")
TRAIN = ("train", "net.onnx", "--data", "data.npz", "--eval", "test.npz", "--every", "2",
         "--batch", "8", "--lr", "0.1", "--ema", "0.9", "--optimizer", "adam", "--lora", "2",
         "--lora-adapter", "--checkpoint-every", "2", "--keep", "1", "--kernels", "numpy",
         "--memory", "1MiB", "--run", "runs/run", "-o", "out.onnx",
         "--force", "--resume")  # fmt: skip
BEFORE, AFTER = (*TRAIN, "--steps", "2"), (*TRAIN, "--steps", "4")
KIT = ("kit", "net.onnx", "--force", "-o", "kits/kit", "--optimizer")
RUN = "runs/run/"
JOURNAL = f"{RUN}metrics.jsonl"
ADAPTER = "out.lora.onnx_adapter"  # of no use but with its model: no old one beside a new model
RESULTS = ("out.onnx", "out.ema.onnx", "out.lora.onnx", ADAPTER, JOURNAL)
DEEDS = {
    "killed": lambda _: dies, "refused": lambda _: fails, "full": lambda _: Full(),
    "lost": loses,
}  # fmt: skip
KEPT = re.compile(r"are kept in (\S+\.safetensors)")
EVERY = [False, pytest.param(True, marks=pytest.mark.slow)]


class Subject:
    """A command, the folder it starts from, and what it makes of it."""

    def __init__(self, place, command, *first):
        self.before, self.work, self.command = place / "before", place / "work", command
        self.before.mkdir(parents=True)
        onnx.save(proto(), self.before / "net.onnx")
        np.savez(self.before / "data.npz", **examples(24))
        np.savez(self.before / "test.npz", **examples(9, 5))
        for name in ("runs", "kits"):
            (self.before / name).mkdir()
        self.work.mkdir()
        refill(self.work, self.before)
        warm([BEFORE, [*KIT, "sgd"]], self.work)
        for each in first:
            done = ended(each, self.before)
            assert done.code == 0, done.err
        refill(self.work, self.before)
        done, self.calls = interrupted(command, self.work)
        assert done.code == 0, done.err
        self.old, self.new = content(self.before), content(self.work)

    def numbers(self, deed, *, every):
        """Calls to interrupt: all, or one, another for each deed."""
        if every:
            return range(1, self.calls + 1)
        return [1 + int(self.calls * ((1 + [*DEEDS].index(deed)) * GOLDEN % 1))]

    def interrupted(self, number, deed):
        refill(self.work, self.before)
        return interrupted(self.command, self.work, number, deed)[0]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    return Subject(tmp_path_factory.mktemp("begun"), AFTER)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    return Subject(tmp_path_factory.mktemp("resumed"), AFTER, BEFORE)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    return Subject(tmp_path_factory.mktemp("kit"), (*KIT, "sgd"), (*KIT, "adam"))


@pytest.fixture(autouse=True)
def own_temporary(tmp_path, monkeypatch):
    """Weights that no other folder takes are kept in one of the test's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def require_told(done, when):
    """The end of a command that something befell: right, or one line that says what."""
    assert done.code in (0, 2, -9), (when, done)
    if done.code == 2:
        assert done.err.splitlines()[-1].startswith("gradtool: "), (when, done.err)
    assert "Traceback" not in done.err, (when, done.err)


def require_whole(subject, left, when):
    """Each file that can be seen is one of those before or after; the journal is a part."""
    for name, data in visible(left).items():
        if name == JOURNAL:
            assert subject.new[name].startswith(data), (when, name)
        elif name.startswith(RUN) and name.endswith(".json"):
            json.loads(data)
        elif name.startswith(RUN) and name.endswith(safetensors.SUFFIX):
            safetensors.load(subject.work / name)
        elif not name.startswith(f"{RUN}."):
            assert data in (subject.old.get(name), subject.new.get(name)), (when, name)
    lost = {name for name in set(subject.old) - set(left) if not name.startswith(RUN)}
    assert lost <= ({ADAPTER} if when.startswith("killed") else set()), (when, lost)


def put_back(folder):
    """Put back what somebody moved away, in the place of what was made meanwhile."""
    away = folder.with_name(folder.name + AWAY)
    if away.is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        away.rename(folder)


def hidden(found):
    return sorted(name for name in found if "/.gradtool-" in f"/{name}")


@pytest.mark.sample(6)
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("which", ["resumed", pytest.param("begun", marks=pytest.mark.exhaustive)])
def test_a_training_goes_on_to_the_same_bits(which, deed, every, request):
    subject = request.getfixturevalue(which)
    for number in subject.numbers(deed, every=every):
        when = f"{deed} at call {number} of {subject.calls}"
        done = subject.interrupted(number, DEEDS[deed]("runs/run"))
        require_told(done, when)
        put_back(subject.work / "runs" / "run")
        left = content(subject.work)
        for path in KEPT.findall(done.err):
            assert safetensors.load(subject.work / path).arrays, (when, path)
            left.pop(path, None)
        require_whole(subject, left, when)
        again = ended(subject.command, subject.work)
        assert again.code == 0, (when, again.err)
        found = content(subject.work)
        for name in RESULTS:
            assert found[name] == subject.new[name], (when, name)
        assert not hidden(found), when


@pytest.mark.exhaustive
@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("deed", DEEDS)
def test_a_kit_is_the_old_one_or_the_new_one(deed, every, kit):
    for number in kit.numbers(deed, every=every):
        when = f"{deed} at call {number} of {kit.calls}"
        done = kit.interrupted(number, DEEDS[deed]("kits"))
        require_told(done, when)
        put_back(kit.work / "kits")
        found = visible({n.removeprefix("kits/"): d for n, d in content(kit.work).items()})
        both = [{n.removeprefix("kits/"): d for n, d in s.items()} for s in (kit.old, kit.new)]
        assert found in both, when
        if done.code == 0:
            assert found == both[1], when
        assert ended(kit.command, kit.work).code == 0, when
        assert content(kit.work) == kit.new, when


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("place", ["runs/run", JOURNAL, ".", "out.onnx"])
def test_what_may_not_be_written_is_refused_and_stays(place, resumed):
    """All but a file that is replaced: its folder says whether it may be."""
    refill(resumed.work, resumed.before)
    path = resumed.work / place
    before = path.stat().st_mode
    path.chmod(before & ~0o222)
    try:
        done = ended(resumed.command, resumed.work)
    finally:
        path.chmod(before)

    require_told(done, f"read-only {place}")
    assert done.code == (0 if place == "out.onnx" else 2)
    assert content(resumed.work) == (resumed.new if place == "out.onnx" else resumed.old)
