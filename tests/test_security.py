"""What SECURITY.md and docs/ci.md promise, sentence by sentence."""

import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import Command
from gates import CONFIG, git, write
from limited import ended

from gradtool import child
from gradtool.errors import UsageError
from gradtool.training.tokenizer import TokenizerFiles, TokenizerProcess

ROOT = Path(__file__).parents[1]
HELD = {}
SECTIONS = (("SECURITY.md", "In scope"), ("docs/ci.md", "What is trusted"))


def holds(sentence):
    def keep(check):
        HELD[sentence] = check
        return check

    return keep


def sentences(file, title):
    """The points of a section, each a line."""
    text = (ROOT / file).read_text(encoding="utf-8")
    (section,) = (part for part in text.split("\n## ") if part.startswith(f"{title}\n"))
    return [line[2:] for line in section.splitlines() if line.startswith("- ")]


SENTENCES = [each for section in SECTIONS for each in sentences(*section)]


@dataclass(frozen=True)
class At:
    """A repository, a home, and a command line in it."""

    run: Command
    folder: Path
    home: Path
    patch: pytest.MonkeyPatch


@pytest.fixture
def folder(tmp_path):
    """A repository of one model, and a file beside it that is nobody's business."""
    found = tmp_path / "repository"
    found.mkdir()
    (tmp_path / "mine").write_text("mine")
    (found / "gradtool.toml").write_text(CONFIG)
    write(found / "net.onnx")
    git(found, "init", "-q")
    return found


@pytest.fixture
def there(run, folder, monkeypatch):
    """A command given in the repository."""
    monkeypatch.chdir(folder)
    return run


def test_every_sentence_is_held_and_no_other():
    assert sorted(SENTENCES) == sorted(HELD)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_it_is_so(sentence, there, folder, home, monkeypatch):
    HELD[sentence](At(there, folder, home, monkeypatch))


def refused(outcome, *said):
    assert outcome.code == 2
    assert all(each in outcome.err + outcome.out for each in said), outcome
    assert "Traceback" not in outcome.err


def mine(folder):
    return (folder.parent / "mine").read_text()


# ---------------------------------------------------------------------------- SECURITY.md


@holds("No file is changed or removed outside of what was named, whatever links lie there.")
def outside(at):
    for name in ("net.grad.onnx", "gradtool-baseline", "net.kit", ".gradtool"):
        (at.folder / name).symlink_to("../mine")
    before = sorted(path.name for path in at.folder.parent.iterdir())
    for command in ("grad net.onnx --force", "check --update", "kit net.onnx --force"):
        at.run(*command.split())

    assert sorted(path.name for path in at.folder.parent.iterdir()) == before
    assert mine(at.folder) == "mine"


@holds(
    "A link in a path that somebody typed is followed; one that lies in the place of a file that "
    "gradtool names is replaced or refused."
)
def typed(at):
    (at.folder / "typed.onnx").symlink_to("../there.onnx")
    (at.folder / "net.grad.onnx").symlink_to("../mine")

    assert at.run("grad", "net.onnx", "-o", "typed.onnx", "--force").code == 0
    assert (at.folder.parent / "there.onnx").exists()
    assert (at.folder / "typed.onnx").is_symlink()
    refused(at.run("grad", "net.onnx", "--force"), "net.grad.onnx: is a link: name it with -o")


def trained(run, folder):
    np.savez(folder / "d.npz", x=np.ones((8, 16), np.float32))
    command = ["train", "net.onnx", "--data", "d.npz", "--batch", "4", "--loss", "mean:loss"]
    assert run(*command, "--steps", "2").code == 0
    return [*command, "--steps", "4", "--resume", "--force"]


@holds("Only a regular file without another name is appended to.")
def appended(at):
    again = trained(at.run, at.folder)
    journal = at.folder / "net.train/metrics.jsonl"
    for make in (journal.hardlink_to, lambda _: journal.mkdir(), journal.symlink_to):
        journal.unlink()
        make(at.folder.parent / "mine")
        refused(at.run(*again), "metrics.jsonl: ")
        journal.rmdir() if journal.is_dir() and not journal.is_symlink() else None
        journal.touch()
    assert mine(at.folder) == "mine"


@holds("A pipe in the place of a file is not waited for.")
def pipes(at):
    again = trained(at.run, at.folder)
    for name in ("metrics.jsonl", "step-00000002.json", "step-00000002.safetensors"):
        place = at.folder / "net.train" / name
        data = place.read_bytes()
        place.unlink()
        os.mkfifo(place)
        refused(at.run(*again), name)
        place.unlink()
        place.write_bytes(data)
    assert at.run(*again).code == 0


@holds("The tensors of a model lie in it or below its own folder, or the model is refused.")
def tensors(at):
    model = onnx.load(at.folder / "net.onnx")
    onnx.save(model, at.folder / "out.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    assert at.run("grad", "out.onnx").code == 0
    (at.folder / "w.bin").rename(at.folder.parent / "w.bin")
    (at.folder / "w.bin").symlink_to("../w.bin")
    refused(at.run("grad", "out.onnx"), "leads out of the model's folder")
    data = (at.folder / "out.onnx").read_bytes()
    (at.folder / "out.onnx").write_bytes(data.replace(b"w.bin", b"/.bin"))
    refused(at.run("grad", "out.onnx"), "is not a plain path inside the model's folder")


class Evil:
    def __reduce__(self):
        return open, ("ran", "w")


@holds(
    "No module that lies in the current folder or beside a model is imported, unless the command "
    "line names it."
)
def modules(at):
    for name in ("numpy", "onnxruntime", "onnx", "json", "mine"):
        (at.folder / f"{name}.py").write_text(f"open('ran_{name}', 'w'); raise SystemExit(9)")
    command = [sys.executable, "-m", "gradtool", "run", "net.onnx", "--batch", "4"]
    for more in (["--verify", "ort"], ["--loss", "mine:loss"]):
        subprocess.run([*command, *more], cwd=at.folder, capture_output=True, check=False)
        assert (at.folder / "ran_mine").exists() is ("mine:loss" in more)

    assert [path.name for path in at.folder.glob("ran_*")] == ["ran_mine"]


CONFINED = """
import os, socket, sys
from gradtool.training import tokenizing
tokenizing._confine()
for act in (lambda: open("mine"), lambda: open("made", "w"), socket.socket, os.pipe):
    try:
        act()
    except OSError as error:
        print(type(error).__name__, error.errno)
print(dict(os.environ))
"""


@holds(
    "A chat template runs in a process of its own that opens no file, starts no process, sees no "
    "variables, and is ended where it takes more time, memory or characters than it may."
)
def templates(at):
    done = subprocess.run(
        child.python("-c", CONFINED), cwd=at.folder, capture_output=True, text=True, check=True,
        env=child.environment(),
    )  # fmt: skip
    assert done.stdout.splitlines() == [*["OSError 24"] * 4, "{}"]
    request = {"messages": [{"role": "user"}], "tools": None, "masks": False}
    for template, said in (
        ("{% for a in range(9**5) %}{% for b in range(9**5) %}{% endfor %}{% endfor %}", "longer"),
        ("{{ 'a' * 9**11 }}", "memory"),
        ("{% for a in range(9**5) %}{{ 'a' * 9**5 }}{% endfor %}", "characters"),
        ("{{ ''.__class__ }}", "forbidden"),
        ("{% include 'net.onnx' %}", "no loader"),
    ):
        files = TokenizerFiles(at.folder / "tokenizer.json", {}, template)
        with pytest.raises(UsageError, match=said):  # noqa: SIM117 - either may tell it
            with TokenizerProcess(files, tokenizes=False, chats=True) as process:
                process.written(request)


@holds("The decoder that a `genai_config.json` names lies in its folder, or is refused.")
def decoders(at):
    folder = at.folder / "model"
    folder.mkdir()
    (folder / "link.onnx").symlink_to("../net.onnx")
    for name in ("../net.onnx", str(at.folder / "net.onnx"), "link.onnx", "C:\\net.onnx", ""):
        document = {"model": {"decoder": {"filename": name}}}
        (folder / "genai_config.json").write_text(json.dumps(document))
        refused(at.run("grad", "model"), "genai_config.json: ")
    assert sorted(path.name for path in folder.iterdir()) == ["genai_config.json", "link.onnx"]


@holds("A configuration that names code is refused, unless `--allow-code` is given.")
def code(at):
    text = "import pathlib\ndef loss(*values): pathlib.Path('ran').touch()"
    (at.folder / "mine.py").write_text(text)
    (at.folder / "gradtool.toml").write_text(f'{CONFIG}loss = ["mine:loss:loss"]\n')

    refused(at.run("check", "--allow-new"), "would run code", "--allow-code")
    assert not (at.folder / "ran").exists()
    allowed = at.run("check", "--allow-new", "--allow-code")
    assert (at.folder / "ran").exists(), allowed


@holds("Nothing is unpickled.")
def pickles(at):
    evil = np.empty(8, object)
    evil[:] = Evil()
    np.savez(at.folder / "d.npz", x=evil)
    (at.folder / "p.npz").write_bytes(pickle.dumps(Evil()))
    for data in ("d.npz", "p.npz"):
        for command in (
            f"train net.onnx --loss mean:loss --data {data}",
            f"run net.onnx --inputs {data}",
        ):
            refused(at.run(*command.split()))
    assert not (at.folder / "ran").exists()


@holds("What a file declares is held against the limits before memory is taken for it.")
def limits(at):
    model = onnx.load(at.folder / "net.onnx")
    model.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    onnx.save(model, at.folder / "net.onnx")

    found = ended(("grad", "net.onnx"), at.folder)

    assert found.code == 2
    assert not found.defect()


@holds("Graphs, functions and documents that are nested without end are refused.")
def nesting(at):
    (at.folder / "p.json").write_text("[" * 100_000)
    refused(at.run("recompute", "net.onnx", "--plan", "p.json"), "nested too deeply")
    body = "y = Identity (x)"
    for _ in range(100):
        body = f"y = If (c) <then_branch = g () => (float[1] y) {{ {body} }}>"
    text = f'<ir_version: 10, opset_import: ["" : 20]> n (bool c) => (float[1] y) {{ {body} }}'
    (at.folder / "deep.onnxtxt").write_text(text)
    refused(at.run("grad", "deep.onnxtxt"), "nested")


@holds("A checkpoint whose bytes are not those that were written is refused.")
def checkpoints(at):
    again = trained(at.run, at.folder)
    path = at.folder / "net.train/step-00000002.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    refused(at.run(*again), "is damaged: its bytes are not those that were written")


@holds(
    "What is remembered of earlier runs lies in folders that only the user may read, and is "
    "believed if the user's own secret made it."
)
def remembered(at):
    assert at.run("check", "--allow-new").code == 0
    made = [
        at.home / "cache/gradtool",
        at.home / "state/gradtool",
        at.home / "cache/gradtool/plans",
    ]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
    assert (at.home / "state/gradtool/secret").stat().st_mode & 0o777 == 0o600
    assert planned_anew(at.run, at.patch) == 0
    for entry in (at.home / "cache/gradtool/plans").iterdir():
        entry.write_bytes(entry.read_bytes().replace(b'"peak": ', b'"peak": 1'))
    assert planned_anew(at.run, at.patch) == 1


def planned_anew(run, monkeypatch, *flags):
    """How many cases a check plans."""
    from gradtool.check import jobs

    seen = []
    plan = jobs.outcome_of
    with monkeypatch.context() as patch:
        patch.setattr(
            jobs, "outcome_of", lambda case, **how: seen.append(case) or plan(case, **how)
        )
        run("check", "--allow-new", "-j1", *flags)
    return len(seen)


@holds("Nothing is sent anywhere.")
def sent(at):
    def refuse(*_):
        raise AssertionError("a socket was asked for")

    at.patch.setattr(socket.socket, "connect", refuse)
    at.patch.setattr(socket, "getaddrinfo", refuse)
    for command in (
        "check --allow-new",
        "grad net.onnx",
        "run net.grad.onnx --dim batch=2",
        "doctor",
    ):
        assert at.run(*command.split()).code == 0, command


@holds("No text of a file reaches the terminal as a control sequence.")
def controls(at):
    model = onnx.load(at.folder / "net.onnx")
    for each in (*model.graph.initializer, *model.graph.node):
        each.name += "\x1b]0;x\x07"
    for node in model.graph.node:
        node.input[:] = [n + "\x1b]0;x\x07" if n.startswith("w") else n for n in node.input]
    onnx.save(model, at.folder / "net.onnx")
    for command in (
        "grad net.onnx",
        "report net.onnx --batch 2",
        "check --allow-new",
        "ops net.onnx",
    ):
        outcome = at.run(*command.split())
        assert "\x1b" not in outcome.out + outcome.err, command


# ---------------------------------------------------------------------------- docs/ci.md


@holds(
    "A configuration names files inside its repository, which is the folder with `.git` in it, "
    "else its own: a model, a plan, a policy, class weights or a folder of baselines that leads "
    "out, by `..`, an absolute path or links, is refused unless `--allow-outside` is given."
)
def inside(at):
    """Each by each way: `check/config/test_inside.py`."""
    shutil.copy(at.folder / "net.onnx", at.folder.parent / "o.onnx")
    (at.folder / "link.onnx").symlink_to("../o.onnx")
    for path in ("../o.onnx", str(at.folder.parent / "o.onnx"), "link.onnx"):
        (at.folder / "gradtool.toml").write_text(CONFIG.replace("net.onnx", path))
        refused(at.run("check", "--allow-new"), "lies outside the repository: --allow-outside")
        assert at.run("check", "--allow-new", "--allow-outside").code == 0


@holds("Links inside the repository are followed.")
def linked(at):
    (at.folder / "link.onnx").symlink_to("net.onnx")
    (at.folder / "gradtool.toml").write_text(CONFIG.replace("net.onnx", "link.onnx"))

    assert at.run("check", "--allow-new").code == 0


@holds("A baseline that is a link is not read, and `--update` puts a file in its place.")
def linked_baseline(at):
    (at.folder / "gradtool-baseline").mkdir()
    baseline = at.folder / "gradtool-baseline/net.json"
    baseline.symlink_to("../../mine")

    refused(at.run("check"), "it is a link, which is not followed")
    assert at.run("check", "--update").code == 0
    assert not baseline.is_symlink()
    assert mine(at.folder) == "mine"


@holds(
    "A cached plan is the user's: it lies in the user's cache folder, under a name that only the "
    "user's secret makes of the model's content, its options and gradtool's sources."
)
def cached(at):
    def entries():
        return {path.name for path in (at.home / "cache/gradtool/plans").iterdir()}

    at.run("check", "--allow-new")
    first = entries()
    write(at.folder / "net.onnx", width=32)
    at.run("check", "--allow-new")
    (at.folder / "gradtool.toml").write_text(CONFIG.replace("mirror", "keep"))
    at.run("check", "--allow-new")
    at.patch.setattr("gradtool.check.cache._standing", lambda: ["other sources"])
    at.run("check", "--allow-new")
    assert len(entries()) == 4
    (at.home / "state/gradtool/secret").unlink()
    at.run("check", "--allow-new")
    assert len(entries()) == 5
    assert first < entries()


@holds(
    "A runtime that gradtool starts is told to send nothing (`ORT_DISABLE_TELEMETRY=1`), unless "
    "the user's environment says otherwise."
)
def private(at):
    at.patch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    assert child.environment()["ORT_DISABLE_TELEMETRY"] == "1"

    at.patch.setenv("ORT_DISABLE_TELEMETRY", "0")
    assert child.environment()["ORT_DISABLE_TELEMETRY"] == "0"


@holds("Nothing in the repository is taken for a cached plan, or for the last run.")
def committed(at):
    at.run("check", "--update")
    at.run("grad", "net.onnx", "-o", "../made.onnx")
    for place in (".gradtool", ".gradtool/cache", ".cache"):
        shutil.copytree(at.home, at.folder / place, dirs_exist_ok=True)
        shutil.copytree(
            at.home / "cache/gradtool", at.folder / place / "gradtool", dirs_exist_ok=True
        )
    (at.folder / ".gradtool/last.json").write_text(json.dumps({"model": "net.onnx", "sha256": ""}))
    (at.folder / "gradtool.toml").rename(at.folder.parent / "kept.toml")
    write(at.folder / "other.onnx")
    shutil.rmtree(at.home)
    refused(at.run("report"), "here are net.onnx, other.onnx")
    (at.folder.parent / "kept.toml").rename(at.folder / "gradtool.toml")
    assert planned_anew(at.run, at.patch) == 1


@holds("Where `CI` is set nothing is remembered, neither read nor written.")
def continuous(at):
    at.run("check", "--allow-new")
    assert planned_anew(at.run, at.patch) == 0
    at.patch.setenv("CI", "true")
    assert planned_anew(at.run, at.patch) == 1
    shutil.rmtree(at.home)
    at.run("grad", "net.onnx")
    assert not at.home.exists()


@holds(
    "A baseline is believed, so what a pull request changes there is for its reader to see; "
    "`--base REF` compares with the models of a commit that the branch cannot change."
)
def believed(at):
    git(at.folder, "add", "-A")
    git(at.folder, "commit", "-qm", "first")
    write(at.folder / "net.onnx", width=32)
    at.run("check", "--update")

    assert at.run("check").code == 0
    assert at.run("check", "--base", "HEAD").code == 1


@holds(
    "The rules are those of the configuration, which a branch can change; `--fail-on` replaces "
    "them, but `limit`s stay."
)
def rules(at):
    at.run("check", "--update")
    write(at.folder / "net.onnx", width=32)
    (at.folder / "gradtool.toml").write_text(CONFIG.replace("peak:0%", "peak:10000%"))
    assert at.run("check").code == 0
    assert at.run("check", "--fail-on", "peak:0%").code == 1
    (at.folder / "gradtool.toml").write_text(f"{CONFIG}limit = {{ peak = 1 }}\n")
    assert at.run("check", "--fail-on", "peak:10000%").code == 1


@holds("A check writes nothing into the repository but baselines, and those with `--update` alone.")
def written(at):
    def files():
        return {str(path.relative_to(at.folder)) for path in at.folder.rglob("*")}

    before = files()
    for flags in ("--allow-new", "--list", "--run --allow-new", "--allow-new --output json"):
        at.run("check", *flags.split())
    assert files() == before
    at.run("check", "--update")
    assert files() - before == {"gradtool-baseline", "gradtool-baseline/net.json"}
