"""Functions of the user's that are wrong: one line with their file and line, and exit code 2."""

import inspect
import json
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from trainings import examples, load, proto

import gradtool as gt
from gradtool.errors import UserCodeError
from gradtool.training.callbacks import HEARD, Begun, Watcher

MISTAKES = {
    "raises": "({takes}):\n    raise RuntimeError('no')\n",
    "deep": "({takes}):\n    return json.loads('{{')\n",
    "exits": "({takes}):\n    raise SystemExit(3)\n",
    "more": "({takes}, and_more):\n    return None\n",
    "text": "({takes}):\n    return 'good'\n",
    "none": "({takes}):\n    return None\n",
    "list": "({takes}):\n    return [1, 2]\n",
}
PLACES = {
    "--data": "",
    "--eval": "",
    "--loss": "op, y",
    "--metric": "outputs, batch",
    "--schedule": "step",
    "--callback": "",
}  # fmt: skip
YIELDS = {
    "raises": "raise RuntimeError('no')",
    "text": "yield 'good'",
    "none": "yield None",
    "list": "yield {'x': object(), 'labels': [1]}",
}


def command(run, tmp_path, monkeypatch, code, flag):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    np.savez(tmp_path / "data.npz", **examples(8))
    name = f"mine_{abs(hash(code)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(f"import json\n\n{code}")
    given = {"--data": "data.npz", "--eval": "data.npz", "--batch": "4", "--steps": "2"}
    given |= {flag: f"{name}:f"}
    return name, run("train", "net.onnx", *(word for pair in given.items() for word in pair))


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("flag", PLACES)
def test_a_mistake_in_a_function_names_its_file_and_line(run, tmp_path, monkeypatch, flag, mistake):
    takes = MISTAKES[mistake].format(takes=PLACES[flag]).replace("(, ", "(")
    name, outcome = command(run, tmp_path, monkeypatch, f"def f{takes}", flag)

    assert outcome.code == 2
    line = 4 if mistake in ("raises", "deep", "exits") else 3
    last = outcome.err.splitlines()[-1]
    assert re.search(rf"\({name}\.py:{line}\)", last), outcome.err
    assert not (tmp_path / "net.trained.onnx").exists()


@pytest.mark.parametrize("mistake", YIELDS)
@pytest.mark.parametrize("flag", ["--data", "--eval"])
def test_a_mistake_in_a_generator_names_its_file(run, tmp_path, monkeypatch, flag, mistake):
    code = f"def f():\n    yield from ()\n    {YIELDS[mistake]}\n"
    name, outcome = command(run, tmp_path, monkeypatch, code, flag)

    assert outcome.code == 2
    assert re.search(rf"\({name}\.py:\d\)", outcome.err.splitlines()[-1]), outcome.err


@pytest.mark.parametrize("name", [*HEARD, "stops"])
@pytest.mark.parametrize("mistake", ["raises", "more", "none"])
def test_a_mistake_in_a_callback_names_its_file_and_line(tmp_path, name, mistake):
    def raises(_self, *_given, **_named):
        raise RuntimeError("no")

    def more(_self, first, second, third, fourth, fifth, sixth, seventh):
        """Takes more than any callback is told."""

    def none(_self, *_given, **_named):
        return None

    mistakes = {"raises": raises, "more": more, "none": none}
    watcher = type("Mine", (Watcher,), {name: mistakes[mistake], "__module__": __name__})()
    data = examples(8)
    silent = ("tokenizes", "tries", "fitted", "skipped", "said")
    heard_here = name not in silent or mistake == "more"
    with gt.Trainer(load(), batch=4, steps=2) as trainer:
        said = pytest.raises(UserCodeError, match=rf"Mine\.{name}.*test_user_code\.py:\d+\)")
        is_wrong = heard_here and (mistake != "none" or name == "stops")
        with said if is_wrong else nullcontext():
            trainer.fit(data, evaluate=data, run=tmp_path / "r", watcher=watcher)


NAMED = """import gradtool as gt

class Ends(gt.Watcher):
    def __init__(self, at=3):
        self.at, self.step = at, 0

    def begun(self, begun):
        print("begun", begun.options["lr"], begun.run)

    def stepped(self, step, epoch, loss, rate, planned):
        self.step = step

    def stops(self):
        return self.step == self.at

sooner = Ends(2)
class Other: ...
number = 3
"""


@pytest.fixture
def called(run, tmp_path, monkeypatch):
    """Train with callbacks of a module."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    np.savez(tmp_path / "data.npz", **examples(8))
    (tmp_path / "watchers_here.py").write_text(NAMED)

    def train(*names):
        line = ("net.onnx", "--data", "data.npz", "--batch", "4", "--steps", "6", "--lr", "0.5")
        return run("train", *line, *(word for name in names for word in ("--callback", name)))

    return train


@pytest.mark.parametrize(
    ("names", "last"),
    [(["Ends"], 3), (["sooner"], 2), (["Ends", "sooner"], 2)],
)
def test_a_class_or_an_instance_is_told_and_may_stop(called, tmp_path, names, last):
    outcome = called(*(f"watchers_here:{name}" for name in names))

    assert outcome.code == 0
    assert outcome.out.count("begun 0.5 net.train") == len(names)
    assert f"stopped after step {last}" in outcome.out
    assert max(path.name for path in tmp_path.glob("net.train/*.json")) == f"step-{last:08}.json"
    assert (tmp_path / "net.trained.onnx").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("watchers_here:Other", "is no gradtool.Watcher, nor a class of one"),
        ("watchers_here:number", "3 is no gradtool.Watcher"),
        ("watchers_here:absent", "watchers_here has no class or Watcher 'absent'"),
        ("no_such_module:Ends", "no module 'no_such_module'"),
        ("Ends", "no module 'Ends': give PKG.MOD:NAME"),
    ],
)
def test_what_is_no_callback_is_one_line(called, tmp_path, name, said):
    outcome = called(name)

    assert outcome.code == 2
    assert said in outcome.err.splitlines()[-1]
    assert not (tmp_path / "net.train").exists()


def test_the_page_has_every_method_with_what_it_takes():
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    section = page.split("\n## Callbacks\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", section, re.MULTILINE))
    taken = {
        name: ", ".join(list(inspect.signature(getattr(Watcher, name)).parameters)[1:])
        for name in (*HEARD, "stops")
    }

    assert rows == taken
    begun = re.search(r"`begun` has (.*?) \|", section)[1]
    assert re.findall(r"`(\w+)`", begun) == [each.name for each in fields(Begun)]


def test_a_mistake_within_a_package_names_the_function():
    with pytest.raises(
        UserCodeError, match=r"raised JSONDecodeError.*\(.*test_user_code\.py:\d+\)"
    ):
        gt.grad(load(), loss=lambda _op, _y: json.loads(""))


def test_verbose_shows_the_traceback(tmp_path):
    (tmp_path / "net.onnx").write_bytes(proto().SerializeToString())
    (tmp_path / "mine.py").write_text("def f():\n    raise RuntimeError('no')\n")
    told = {}
    for flag in ([], ["-v"]):
        line = [sys.executable, "-m", "gradtool", *flag, "train", "net.onnx", "--data", "mine:f"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        told[bool(flag)] = done.stderr

    assert "Traceback" not in told[False]
    assert 'mine.py", line 2' in told[True]
    assert told[True].splitlines()[-1] == told[False].splitlines()[-1]


@pytest.mark.extra
@pytest.mark.parametrize("takes", ["s", "step", "step, steps"])
def test_a_schedule_of_the_users_is_that_of_lambda_lr(tmp_path, monkeypatch, takes):
    torch = pytest.importorskip("torch")
    from gradtool.training.schedules import schedule

    monkeypatch.chdir(tmp_path)
    name = f"rates_{len(takes)}"
    (tmp_path / f"{name}.py").write_text(f"def f({takes}): return 0.9 ** {takes[:4].strip(',')}\n")
    ours = schedule(f"{name}:f", 0.5, steps=10)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    theirs = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    for step in range(10):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
