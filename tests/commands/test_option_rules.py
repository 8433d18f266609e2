"""What means nothing together is refused; a pair of options that is taken does something."""

import hashlib

import click
import pytest
from conftest import sampled
from pairs import COMMANDS, SIZES, Walk, pairs, parameters

from gradtool.commands.group import group
from gradtool.commands.option_rules import RULES
from gradtool.training.data_options import DataOptions
from gradtool.workloads.options import options_of

GLOBAL = {"color", "config", "no_config", "allow_outside", "allow_code", "verbose", "quiet"}
ALL = [(command, tuple(base), first, second) for command, base, first, second in pairs()]


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    walk = Walk(tmp_path_factory.mktemp("models"))
    walk.prepare()
    return walk


def drawn():
    """One of 256 pairs, the same ones every time."""
    return [pair for pair in ALL if hashlib.sha256(repr(pair).encode()).digest()[0] == 0]


@pytest.mark.sample(5, 2.5)
@pytest.mark.parametrize(("command", "base", "first", "second"), sampled(drawn(), 8))
def test_a_pair_of_options_changes_something_or_is_refused(walk, command, base, first, second):
    assert walk.fault(command, list(base), first, second) is None


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_pair_changes_something_or_is_refused(walk, command):
    faults = [walk.fault(*pair) for pair in ALL if pair[0] == command]

    assert not [fault for fault in faults if fault]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_walk_knows_every_option(command):
    left = {"device", "threads"} if command in ("run", "recompute", "train") else set()
    if command == "train":
        left |= {"data", "ranks", "deterministic", "timeout", "shard", "sync_batchnorm"}
        left |= {"stages", "log", "callback", "shard_tables", "staleness"}
        left |= set(options_of(DataOptions)) - {"split"}  # of tables, images and recordings
    left |= {"force"} if command == "init" else set()
    left |= set(SIZES) if command == "run" else set()

    assert set(parameters(command)) - GLOBAL - left == set(COMMANDS[command][1]) - left


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_order_of_two_options_does_not_matter(run, tmp_path, command):
    """Nor is any pair a bug: what is refused before work begins is one line, exit 2."""
    (tmp_path / "net.onnx").write_bytes(b"")
    _, options = COMMANDS[command]
    for first, second in zip(options, list(options)[1:], strict=False):
        words = options[first], options[second]
        forth = run(command, "net.onnx", *words[0], *words[1])
        back = run(command, "net.onnx", *words[1], *words[0])

        assert (forth.code, forth.err) == (back.code, back.err)
        assert forth.code in (1, 2)
        assert forth.err.rpartition("\ngradtool: ")[2].count("\n") == 1


@pytest.mark.parametrize("command", RULES)
def test_rules_are_of_parameters_that_exist(command):
    context = click.Context(group)
    known = {p.name for p in group.get_command(context, command).params}
    named = {
        name
        for rule in RULES[command]
        for name in getattr(rule, "options", "").split()
    }  # fmt: skip

    assert named <= known


SEARCH = ("--cost", "nofile.json", "--time-limit", "30s", "--seed", "5")
REFUSED = {
    "a search of a recipe": (
        ("recompute", "net.onnx", "--strategy", "sqrt", *SEARCH, "--points", "7"),
        "--points needs --frontier",
    ),
    "what work costs": (
        ("recompute", "net.onnx", "--strategy", "sqrt", *SEARCH),
        "--cost needs --budget or --max-slowdown or --frontier or --strategy min-cut or optimal",
    ),
    "a plan with functions": (
        ("mirror", "net.onnx", "-o", "p.json", "--functions"),
        "-o FILE.json is the plan alone: leave out --functions",
    ),
    "a configuration of a named model": (
        ("report", "net.onnx", "--config", "x.toml"),
        "MODEL|RUN is named, so no configuration is read: leave out --config",
    ),
    "a quiet verbose command": (("-q", "ops", "-v"), "--quiet cannot be combined with --verbose"),
    "the gradient of a gradient": (
        ("report", "made.onnx", "--batch", "5", "--wrt", "w1"),
        "--wrt changes nothing: the model holds its gradients",
    ),
    "the labels of no loss": (
        ("grad", "net.onnx", "--loss", "sum:y", "--labels", "t"),
        "--labels t: the loss takes no labels",
    ),
    "the state beside a recipe": (
        ("recompute", "made.onnx", "--batch", "5", "--strategy", "sqrt", "--optimizer", "adam"),
        "optimizer changes nothing of the strategy sqrt: the graph holds its gradients",
    ),
    "another runtime by itself": (
        ("run", "net.onnx", "--engine", "ort", "--verify", "finite-diff", "--verify", "ort"),
        "--engine ort cannot be combined with --verify ort",
    ),
    "plans in another runtime": (
        ("run", "net.onnx", "--engine", "ort", "--verify", "plans"),
        "--engine ort cannot be combined with --verify plans",
    ),
    "the outputs of stages": (
        ("report", "net.onnx", "--batch", "4", "--ranks", "2", "--stages", "2", "--only-loss"),
        "--stages returns the loss alone: leave out --only-loss",
    ),
    "gradients of forward": (
        ("run", "net.onnx", "--batch", "2", "--fetch", "h", "--save-grads", "g.npz"),
        "--save-grads: this step returns no gradients",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_nothing_is_refused_in_one_line(walk, case):
    arguments, message = REFUSED[case]

    assert walk(*arguments).refused == f"gradtool: {message}"


def test_threads_are_of_what_is_run(shell):
    done = shell("recompute", "net.onnx", "--budget", "min", "--threads", "2")

    assert (done.returncode, done.stderr) == (2, b"gradtool: --threads needs --cost time\n")


def test_flags_of_gradtool_go_before_a_command_and_after_it(walk):
    plain = walk("grad", "net.onnx")
    before, after = walk("-q", "grad", "net.onnx"), walk("grad", "net.onnx", "-q")

    assert "next: " in plain.err
    assert before.err == after.err == ""
    assert before.files == after.files == plain.files


@pytest.mark.parametrize("where", [0, 1, 2])
def test_no_configuration_is_taken_wherever_that_is_said(walk, where):
    words = ["check", "--list"]
    words.insert(where, "--no-config")

    assert "no configuration" in walk(*words).err
    assert walk("check", "--list").code == 0
