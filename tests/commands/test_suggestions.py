from importlib import import_module

import click
import pytest

from gradtool.commands.group import COMMANDS
from gradtool.text.synonyms import NAMES, plain
from gradtool.text.words import meant, suggest

# What people type, by the flag, value or command that they mean.
LINES = {
    "train m --data d --learning-rate 1": "--lr",
    "train m --data d -lr 1": "--lr",
    "train m --data d --epoch 3": "--epochs",
    "train m --data d --num_train_epochs 3": "--epochs",
    "train m --data d --optim adam": "--optimizer",
    "train m --data d --lr-schedule cosine": "--schedule",
    "train m --data d --momentum 0.9": "--optimizer-option",
    "train m --data d --max_grad_norm 1": "--clip-norm",
    "train m --data d --Batch-Size=8": "--batch",
    "train m --data d --optimizer adamW": "'adamw'",
    "train m --data d --optimizer Adam_W": "'adamw'",
    "train m --data d --kernels nativ": "'native'",
    "train m --dataset d": "--data",
    "grad m --output-file x": "--output",
    "grad m --optimizer SGD": "'sgd'",
    "grad m --externaldata never": "--external-data",
    "grad m --external-data alwaysss": "'always'",
    "recompute m --strategy checkmate": "'optimal'",
    "recompute m --strategy min_cut": "'min-cut'",
    "recompute m --time-limt 3": "--time-limit",
    "mirror m --optimizer AdaGrad": "'adagrad'",
    "run m --engine onnxruntime": "'ort'",
    "run m --verify gradcheck": "'finite-diff'",
    "run m --mesure": "--measure",
    "report m --by tensors": "'tensor'",
    "report m --format md": "'markdown'",
    "kit m --optimizer adam-w": "'adamw'",
    "compare a b --by ops": "'operator'",
    "check --formt json": "--format",
    "check --format JSON": "'json'",
    "doctor --format yaml": "'json'",
    "schema Train": "'train'",
    "--colour never doctor": "--color",
    "--color alwaysss doctor": "'always'",
    "gradd m": "'grad'",
    "fit m": "'train'",
    "backward m": "'grad'",
    "Report m": "'report'",
}


@pytest.mark.parametrize("line", LINES)
def test_a_wrong_flag_or_value_is_one_line_that_names_the_right_one(run, line):
    outcome = run(*line.split())

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    assert f"; did you mean {LINES[line]}? (see gradtool" in outcome.err


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (("--loss", "cross-entropy"), "'ce'"),
        (("--loss", "CrossEntropyLoss:y"), "'ce'"),
        (("--loss", "BCEWithLogitsLoss"), "'bce-logits'"),
        (("--loss", "MSELoss"), "'mse'"),
        (("--wrt", "W.1"), "'w1'"),
        (("--dim", "n=3"), "'N'"),
    ],
)
def test_names_that_a_model_decides_on(run, model, options, wanted):
    import numpy as np

    body = "m (float[N, 4] x) => (float[N, 3] y) { y = MatMul (x, w1) }"
    outcome = run("grad", model(body, w1=np.ones((4, 3), np.float32)), *options)

    assert outcome.code in (2, 3)
    assert f"; did you mean {wanted}?" in outcome.err.splitlines()[-1]


def flags():
    """By command, its flags."""
    for name in COMMANDS:
        command = import_module(f"gradtool.commands.{name.replace(' ', '_')}").command
        yield (
            name,
            [f for p in command.params for f in (*p.opts, *p.secondary_opts) if f[:2] == "--"],
        )


def misspelt(name):
    """`name` with a letter twice, missing, out of place or another, its case or signs changed."""
    middle = len(name) // 2 + 1
    yield name[:middle] + name[middle - 1 :]
    yield name[: middle - 1] + name[middle:]
    yield name + "s"
    yield name.replace("-", "_").replace("__", "--")
    yield name.upper()


def test_misspelt_flags_of_all_commands_find_the_flag():
    tried = wrong = 0
    for _, known in flags():
        for flag in known:
            for typed in misspelt(flag):
                if len(flag) < 6 or typed in known:
                    continue
                tried += 1
                wrong += meant(typed, known) != flag

    assert tried > 1000
    assert wrong < tried / 50


def test_every_name_that_others_have_for_ours_is_of_something():
    known = {plain(flag) for _, found in flags() for flag in found}
    known |= {plain(flag) for flag in ("--version", "--help")}
    known |= {plain(name) for name in COMMANDS}
    for name in COMMANDS:
        command = import_module(f"gradtool.commands.{name.replace(' ', '_')}").command
        for parameter in command.params:
            if isinstance(parameter.type, click.Choice):
                known |= {plain(choice) for choice in parameter.type.choices}
    from gradtool.losses.terms import kinds
    from gradtool.planning.recompute.policy import POLICIES
    from gradtool.training.metrics import NAMES as METRICS
    from gradtool.training.schedules import SHAPES

    known |= {plain(name) for names in (kinds(), POLICIES, METRICS, SHAPES) for name in names}

    assert {name for name in NAMES if plain(name) not in known} <= {"top-5", "labels"}


def test_no_name_that_others_have_is_there_twice():
    said = {name: [plain(word) for word in (name, *words)] for name, words in NAMES.items()}

    assert not {name for name, words in said.items() if len(words) > len(set(words))}


def test_nothing_near_says_nothing():
    assert suggest("--zzzz", ["--lr", "--epochs"]) == ""
    assert suggest("", ["", "x"]) == ""
