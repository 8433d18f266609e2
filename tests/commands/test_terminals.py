import re

import numpy as np
import pytest
from rich.cells import cell_len

from gradtool.commands.group import COMMANDS
from gradtool.reports import console

WIDTHS = (60, 80, 120)
LAYER = """{name} (float[N, 16] x) => (float[N, 8] the_output_of_the_whole_network) {{
    blocks_first_attention_projection_out = MatMul (x, blocks_first_attention_projection_weight)
    h = Relu (blocks_first_attention_projection_out)
    k = Sigmoid (h)
    the_output_of_the_whole_network = MatMul (k, blocks_second_attention_projection_weight)
}}"""
CONFIG = """
[[case]]
name = "a-name-of-a-case-as-long-as-they-come-in-repositories"
model = "a_network_with_a_long_name_in_a_file.onnx"
dims = { N = [2, 4] }
[[case]]
name = "b"
model = "b.onnx"
dims = { N = 4 }
"""
A, B = "a_network_with_a_long_name_in_a_file.onnx", "b.onnx"
# Commands that print tables, but for what numbers of a machine do to them.
LINES = (
    f"mirror --report {A} --batch 4 --memory 1MiB",
    f"mirror --report {A} {B} --batch 4",
    f"mirror --report {A} --batch 4 --by tensor",
    f"recompute {A} --frontier --points 3 --batch 8 -v",
    f"report {A} --batch 4",
    f"report {A} --batch 4 --by tensor",
    f"report {A} {B} --batch 4",
    f"report {A} --ranks 4 --stages 2 --micro-batches 2 --batch 4",
    f"compare {A} {B} --batch 4",
    f"ops {A}",
    f"run {A} --batch 4 --measure --verify plans",
    f"run {A} --batch 4 --explain-kernels",
    "check --allow-new",
    "check --list",
    "doctor",
    "schema",
    "init --no-baseline --force",
)


@pytest.fixture
def networks(model, tmp_path):
    """Two networks with long names, and a configuration of cases."""
    rng = np.random.default_rng(0)
    for name, wide in ((A, 64), (B, 32)):
        shapes = {"first": (16, wide), "second": (wide, 8)}
        weights = {
            f"blocks_{which}_attention_projection_weight": rng.normal(size=shape).astype("f4")
            for which, shape in shapes.items()
        }
        model(LAYER.format(name="net"), name, **weights)
    (tmp_path / "gradtool.toml").write_text(CONFIG, encoding="utf-8")


@pytest.fixture
def wide(run, monkeypatch):
    """Runs a command line whose streams are a terminal of a width."""

    def command(columns, line):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "dumb")  # so that there is no live line
        monkeypatch.setattr(console, "is_terminal", lambda _stream: True)
        return run(*line.split())

    return command


@pytest.mark.sample(9)
@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("line", LINES)
def test_no_line_is_wider_than_the_terminal_and_no_number_is_cut(wide, line):
    seen = {columns: wide(columns, line) for columns in WIDTHS}

    for columns, outcome in seen.items():
        assert outcome.code == 0, outcome.err
        shown = (outcome.out + outcome.err).splitlines()
        assert max(map(cell_len, shown)) <= columns, columns
    numbers = [re.findall(r"\d[\d.]* (?:[KM]i)?B\b", outcome.out) for outcome in seen.values()]
    if "run" not in line and "doctor" not in line:
        assert len({len(found) for found in numbers}) == 1 or "--by" in line or "-v" in line


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_in_groups_of_what_is_there(run, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    from importlib import import_module

    import click

    from gradtool.commands.call import GROUPS, MANY, PLACES

    page = run(*command.split(), "--help").out
    params = import_module(f"gradtool.commands.{command.replace(' ', '_')}").command.params
    shown = [p for p in params if isinstance(p, click.Option) and not p.hidden]
    titles = re.findall(r"^(\w.*):$", page, re.MULTILINE)

    assert all(len(re.findall(rf"^  .*{p.opts[-1]}\b", page, re.MULTILINE)) >= 1 for p in shown)
    if len(shown) < MANY:
        assert titles == ["Options"]
        return
    assert len(titles) == len(set(titles)) > 4
    assert set(titles) <= set(GROUPS)
    for option in shown:
        assert getattr(option, "group", "") in GROUPS or option.name in PLACES, option.name


def test_the_help_of_completion_has_a_line_for_each_shell(run):
    page = run("completion", "--help").out.splitlines()

    for name in ("bash", "zsh", "fish"):
        (line,) = (line for line in page if f"gradtool completion {name} >" in line)
        assert line.startswith(f"  {name}   ")
