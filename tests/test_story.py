"""The story of docs/ci.md: a repository whose models change, on branches and after a merge."""

import re
import shutil
from pathlib import Path

import pytest
from story import PAGE, replayed

MISSING = [name for name in ("bash", "git") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> str:
    """The page with what its commands print here and now."""
    return replayed(PAGE.read_text(encoding="utf-8"), tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def commands(told) -> list[tuple[str, str]]:
    """Each command of the page, and what it printed."""
    blocks = re.findall(r"^```console\n(.*?)^```$", told, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in f"\n{block}".split("\n$ ") if part]
    return [(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def after(commands, command: str, number: int = 0) -> str:
    """What a command printed the `number`-th time."""
    return [output for each, output in commands if each == command][number]


def test_the_page_shows_what_is_printed(told):
    page = PAGE.read_text(encoding="utf-8")

    assert told == page, "run python tests/story.py"


def test_only_growth_is_an_error(commands):
    failed = [each for each, output in commands if "[exit" in output]

    assert failed == [
        "gradtool check",
        "gradtool check --output table 2> /dev/null",
        "gradtool --quiet check --base HEAD~1 decoder",
    ]
    assert all(
        output.rstrip().endswith("\n[exit 1]") for _, output in commands if "[exit" in output
    )


def test_init_records_both_models(commands):
    assert after(commands, "ls gradtool-baseline").split() == ["decoder.json", "encoder.json"]
    assert "2 cases checked, none failed" in after(commands, "gradtool check")


def test_a_wider_layer_fails_with_the_tensors_that_grew(commands):
    output = after(commands, "gradtool check", 1)

    assert re.search(r"^ encoder .* GREW$", output, re.MULTILINE)
    assert re.search(r"^ decoder .* ok$", output, re.MULTILINE)
    for tensor, was, now in (("t0", "8192x64", "8192x128"), ("w2", "64x64", "128x128")):
        assert re.search(rf"^ {tensor} .* {was} → {now}$", output, re.MULTILINE)


def test_an_update_of_one_case_makes_it_green_and_writes_one_baseline(commands):
    assert "recorded" in after(commands, "gradtool check --update encoder")
    assert "2 cases checked, none failed" in after(commands, "gradtool check", 2)
    assert after(commands, "git show --name-only --format=%s").split("\n")[2:4] == [
        "gradtool-baseline/encoder.json",
        "models/encoder.onnx",
    ]


def test_what_cannot_be_computed_again_is_named_with_the_reason(commands):
    output = after(commands, "gradtool check --output table 2> /dev/null")

    for layer in range(2):
        why = rf"no longer in the place of t{layer}, Tanh → RandomNormalLike: it draws at random"
        assert re.search(rf"\n h{layer} .* {why}", output)


def test_branches_that_update_other_cases_merge_without_conflict(commands):
    (merge,) = [output for each, output in commands if "git merge" in each]

    assert merge == ""
    assert "2 cases checked, none failed" in after(commands, "gradtool --quiet check")


def test_an_earlier_commit_is_a_base(commands):
    output = after(commands, "gradtool --quiet check --base HEAD~1 decoder")

    assert "1 case checked against HEAD~1, 1 failed" in output
    assert "decoder: peak" in output


def test_the_page_names_every_input_of_the_action():
    import yaml

    page = PAGE.read_text(encoding="utf-8")
    action = yaml.safe_load((Path(__file__).parents[1] / "action.yml").read_text(encoding="utf-8"))

    assert [name for name in action["inputs"] if f"`{name}`" not in page] == []
