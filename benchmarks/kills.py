"""Kills every command that writes files, at each call that changes one, and judges what is left.

    python benchmarks/kills.py [COMMAND ...]

A state is good if each model, with its data, is the old one or the new one, if baselines are all
old or all new, if no new half of a step lies beside an old one, and if the command run again ends
where it would have ended.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import onnx
from kills import Folder, content, result, states, visible
from onnx import helper, numpy_helper

from gradtool import cli

Action = Callable[[], object]
CONFIG = """[[case]]
name = "{name}"
model = "{name}.onnx"
plan = "keep"
"""


def dense(seed: int, name: str, elements: int = 600) -> onnx.ModelProto:
    """A model with one weight, drawn with a seed."""
    weight = np.random.default_rng(seed).standard_normal(elements).astype(np.float32)
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"], name="add"),
        helper.make_node("Exp", ["s"], ["e"], name="exp"),
        helper.make_node("Sin", ["e"], ["f"], name="sin"),
        helper.make_node("ReduceSum", ["f"], ["loss"], name="sum", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes, name,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [elements])],
        [helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])],
        [numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def folder_of(place: Path, sizes: dict[str, int], *, config: bool) -> None:
    """Models, one beside its weights in a file, and what `gradtool check` reads."""
    place.mkdir(parents=True, exist_ok=True)
    for seed, (name, size) in enumerate(sizes.items()):
        (place / f"{name}.onnx").write_bytes(dense(seed, name, size).SerializeToString())
    if config:
        text = "".join(CONFIG.format(name=name) for name in sizes)
        (place / "gradtool.toml").write_text(text)


def command(*arguments: str) -> Action:
    """A command line, as what runs in a process that is killed."""
    return partial(cli.run, list(arguments))


def wholes(found: Folder) -> dict[str, Folder]:
    """Each model with the data it names, and each other file, by its name."""
    made: dict[str, Folder] = {}
    for name, data in visible(found).items():
        if name.endswith(".data"):
            continue
        made[name] = {name: data}
        if name.endswith(".onnx"):
            for tensor in onnx.load_from_string(data).graph.initializer:
                for entry in tensor.external_data:
                    if entry.key == "location":
                        made[name][entry.value] = found.get(entry.value, b"absent")
    return made


def is_good(left: Folder, old: Folder, new: Folder, together: tuple[str, ...]) -> bool:
    """Whether every file is old or new, and those that belong together are of one age."""
    was, now, here = wholes(old), wholes(new), wholes(left)
    ages = set()
    for name in sorted({*was, *now, *here}):
        mine = here.get(name)
        if mine not in (was.get(name), now.get(name)) and name not in together:
            return False
        if name.startswith(together) and mine is not None and was.get(name) != now.get(name):
            ages.add(mine == now.get(name))
    return len(ages) < 2


def main() -> int:
    """Run the commands that begin with what was asked for; exit with 1 where a state was bad."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="*", help="how its name begins; without any, all of them")
    wanted = tuple(parser.parse_args().command)
    bad = total = 0
    commands = {
        "grad, inline": ("grad {} -o out.onnx --force", ()),
        "grad, data beside": ("grad {} -o out.onnx --force --external-data always", ()),
        "grad --optimizer adamw, data beside": (
            "grad {} -o out.onnx --force --optimizer adamw --external-data always", ()),
        "grad --split, inline": (
            "grad {} -o out.onnx --force --split", ("out.forward.onnx", "out.backward.onnx")),
        "grad --split, data beside": (
            "grad {} -o out.onnx --force --split --external-data always",
            ("out.forward.onnx", "out.backward.onnx")),
        "mirror": ("mirror {} -o out.onnx --force --external-data always", ()),
        "recompute": ("recompute {} --budget 100% -o out.onnx --force --external-data always", ()),
        "recompute, a plan": ("recompute {} --budget 100% -o out.json --force", ()),
        "report --html --trace": ("report {} --html out.html --trace out.trace --force", ()),
        "check --update": ("check --update --jobs 1", ("gradtool-baseline/",)),
        "check --output": ("check --jobs 1 --output junit:out.xml --output sarif:out.sarif", ()),
        "init": ("init --force", ("gradtool-baseline/",)),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="gradtool-") as place:
        for name, (line, together) in commands.items():
            if wanted and not name.startswith(wanted):
                continue
            for there in (False, True):
                found, wrong = sweep(Path(place), line, together, there=there)
                total, bad = total + found, bad + len(wrong)
                print(f"{name}, {'old files there' if there else 'nothing there'}: {found} states, "
                      f"{len(wrong)} bad", *wrong[:3], flush=True)  # fmt: skip
    print(f"{total} states after a kill, {bad} bad")
    return int(bad > 0)


def sweep(
    place: Path, line: str, together: tuple[str, ...], *, there: bool
) -> tuple[int, list[str]]:
    """How many states a command left, and which of them were bad."""
    before, work = place / "before", place / "work"
    checking = line.startswith(("check", "init"))
    remove(before)
    folder_of(before, {"a": 600, "b": 700, "c": 800}, config=line.startswith("check"))
    if "--output" in line:
        settle(before, command("check", "--update", "--jobs", "1"))
    if there:
        settle(before, command(*line.format("b.onnx").split()))
        if checking:
            folder_of(before, {"a": 610, "b": 710, "c": 810}, config=False)
    action = command(*line.format("a.onnx").split())
    old, new = content(before), result(work, before, action)
    warm(work, action)
    found, wrong = 0, []
    for when, left, again in states(work, before, action):
        found += 1
        if not is_good(left, old, new, together) or wholes(again) != wholes(new):
            wrong.append(when)
    return found, wrong


def warm(folder: Path, action: Action) -> None:
    """Import what a command needs, so that its children need not."""
    silence = io.StringIO()
    with chdir(folder), redirect_stdout(silence), redirect_stderr(silence):
        action()


def settle(folder: Path, action: Action) -> None:
    """Run a command in a folder to its end."""
    copy = folder.with_name("settled")
    result(copy, folder, action)
    remove(folder)
    copy.rename(folder)


def remove(folder: Path) -> None:
    """Remove a folder."""
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
