"""The composite action, run as its runner does; without a network but for what is slow."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from action import Annotation, Runner
from repository import Repository, network
from shadows import Shadows
from standards import junit_mistakes, sarif_mistakes

ROOT = Path(__file__).parents[1]
MISSING = [name for name in ("bash", "git") if shutil.which(name) is None]
# Runs each module with the flags and in the folder that the action gives it, but installs nothing.
PYTHON = """#!/bin/sh
if [ "$2" = -c ]; then
    "{python}" "$@" > /dev/null && echo "$0"
elif [ "$3" = venv ]; then
    "{python}" "$1" "$2" "$3" --help > /dev/null
    mkdir -p "$4/bin"
    cp "$0" "$4/bin/python"
    printf '#!/bin/sh\\nexport PYTHONPATH="{root}"\\n' > "$4/bin/gradtool"
    printf 'exec "{python}" -P -m gradtool "$@"\\n' >> "$4/bin/gradtool"
    chmod +x "$4/bin/gradtool"
else
    "{python}" "$1" "$2" "$3" --version > /dev/null || true
    for argument; do echo "$argument" >> "{log}"; done
fi
"""
HOSTILE = "$(touch pwned)`touch pwned`'; touch pwned; '\"${{ inputs.cases }}"

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """A repository of two small models with baselines, committed."""
    made = Repository.made(tmp_path_factory.mktemp("recorded") / "origin")
    made.write("small.onnx", network(16))
    made.write("large.onnx", network(32))
    assert made.gradtool("init", "--dim", "batch=8192").returncode == 0
    made.commit("Watch the memory of training")
    return made.path


@pytest.fixture
def repository(recorded, tmp_path) -> Repository:
    """A copy of it."""
    return Repository(shutil.copytree(recorded, tmp_path / "origin"))


@pytest.fixture
def runner(tmp_path) -> Runner:
    return Runner(ROOT, tmp_path / "runner")


@pytest.fixture
def action(runner):
    """Runs the action in a folder; `python` makes an environment of nothing."""
    python, log = runner.temporary / "python", runner.temporary / "installed"
    python.write_text(PYTHON.format(python=sys.executable, root=ROOT, log=log), encoding="utf-8")
    python.chmod(0o755)

    def run(folder: Path, **inputs: str):
        given = {name.replace("_", "-"): value for name, value in inputs.items()}
        return runner.run(folder, {"python": str(python)} | given)

    run.installed = lambda: log.read_text(encoding="utf-8").splitlines()
    return run


def test_a_repository_as_it_was_recorded_passes(repository, action):
    job = action(repository.path)

    assert (job.code, job.err, job.annotations) == (0, "", [])
    assert job.ran == ["Install gradtool", "Check"]
    assert "2 cases checked, none failed" in job.out
    assert job.summary.startswith("### gradtool check: 2 cases checked, none failed\n")
    assert "| small | mirror |" in job.summary
    assert action.installed()[-1] == str(ROOT)


def test_growth_fails_with_an_annotation(repository, action):
    repository.write("large.onnx", network(64))

    job = action(repository.path, sarif="out of it.sarif", junit="out 'of' it.xml")

    assert job.code == 1
    (found,) = job.annotations
    lines = (repository.path / "gradtool.toml").read_text(encoding="utf-8").splitlines()
    assert (found.kind, found.properties["file"]) == ("error", "gradtool.toml")
    assert found.properties["title"] == "gradtool check: large: grew"
    assert lines[int(found.properties["line"])] == 'name = "large"'
    assert re.match(r"peak .* \(\+\d+\.\d %\): fail-on peak:1%\+1MiB; grew: ", found.message)
    assert "#### large: grew" in job.summary
    assert sarif_mistakes((repository.path / "out of it.sarif").read_text()) == []
    assert junit_mistakes((repository.path / "out 'of' it.xml").read_text()) == []


def test_cases_and_rules_are_one_a_line(repository, action):
    repository.write("large.onnx", network(64))

    assert action(repository.path, cases="small\n").code == 0
    rules = "peak:1000%+1MiB\nnodes:1\n"
    assert action(repository.path, cases="small\nlarge", fail_on=rules).code == 0


def test_flags_are_passed_on(repository, action):
    shutil.rmtree(repository.path / "gradtool-baseline")

    assert action(repository.path, cases="small").code == 1
    assert action(repository.path, cases="small", allow_new="true").code == 0


def test_no_file_of_the_checkout_is_imported(repository, action, tmp_path, monkeypatch):
    shadows = Shadows.made(repository.path, tmp_path / "imported", ("encodings",))
    monkeypatch.setenv("PYTHONPATH", str(repository.path))

    job = action(repository.path)

    assert shadows.imported == []
    assert job.code == 0, job.err


def test_code_that_the_configuration_names_is_run_where_that_is_allowed(repository, action):
    path = repository.path / "gradtool.toml"
    path.write_text(path.read_text().replace("[[case]]", "[[case]]\nloss = 'theirs:loss'", 1))
    text = "open('imported', 'w')\ndef loss(op, y):\n    return op.ReduceMean(y, keepdims=0)\n"
    (repository.path / "theirs.py").write_text(text)

    job = action(repository.path, allow_new="true")
    assert (job.code, (repository.path / "imported").exists()) == (2, False)
    assert "gradtool.toml" in job.err
    action(repository.path, allow_new="true", allow_code="true")
    assert (repository.path / "imported").exists()


def test_the_base_is_fetched_into_a_shallow_clone(repository, action, tmp_path):
    base = repository.git("rev-parse", "HEAD")
    repository.write("large.onnx", network(64))
    repository.commit("Widen")
    clone = tmp_path / "clone"
    url = f"file://{repository.path}"
    repository.git("clone", "--quiet", "--depth=1", url, str(clone))

    job = action(clone, base=base, cases="large")

    assert job.code == 1, job.err
    assert f"1 case checked against {base}, 1 failed" in job.out


def test_inputs_are_data_and_no_commands(repository, action):
    where = repository.path / HOSTILE.replace("/", "-")
    where.mkdir()

    flags = {"allow_new": HOSTILE, "fail_on_stale": HOSTILE, "extras": HOSTILE}
    for inputs, said in (
        ({"cases": f"--help\n{HOSTILE}", **flags}, "no case '--help'"),
        ({"base": HOSTILE}, "fatal: "),
        ({"base": "--upload-pack=touch pwned"}, "fatal: "),
        ({"fail_on": HOSTILE}, "is no rule"),
        ({"sarif": f"missing/{HOSTILE}", "junit": f"missing/{HOSTILE}.xml"}, "there is no folder"),
    ):
        job = action(repository.path, **inputs)

        assert job.code != 0
        assert said in job.err
        assert job.annotations == []
    assert f"{ROOT}[{HOSTILE}]" in action.installed()
    assert action(repository.path, working_directory=where.name, cases="small").code == 0
    assert not list(repository.path.rglob("pwned"))


def test_no_expression_is_part_of_a_script(runner):
    assert [step["name"] for step in runner.steps if "${{" in step["run"]] == []


def test_it_uses_no_action_of_others_and_uploads_nothing(runner):
    assert [step for step in runner.steps if "uses" in step] == []
    assert not re.search(r"curl|wget|upload", " ".join(step["run"] for step in runner.steps))


def test_every_input_is_used_and_described(runner):
    used = re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8"))

    assert set(used) == set(runner.definition["inputs"])
    assert all(each["description"] for each in runner.definition["inputs"].values())


@pytest.mark.slow
def test_the_action_installs_what_it_needs(repository, runner):
    repository.write("large.onnx", network(64))

    job = runner.run(repository.path, {"python": sys.executable})

    if not list(runner.temporary.glob("gradtool-environment/*/gradtool*")):
        pytest.skip(f"packages cannot be installed here: {job.err.strip()[-200:]}")
    assert job.code == 1, job.err
    assert [found.properties["title"] for found in job.annotations] == [
        "gradtool check: large: grew"
    ]


STEPS = r"""
inputs:
  name: {description: who, default: nobody}
runs:
  using: composite
  steps:
    - {name: one, id: one, shell: bash, env: {WHO: "${{ inputs.name }}"}, run: "
        echo \"said=hello $WHO\" >> $GITHUB_OUTPUT;
        printf 'A=1\nB<<end\ntwo\nlines\nend\n' >> $GITHUB_ENV;
        echo /opt/some >> $GITHUB_PATH; echo '# one' >> $GITHUB_STEP_SUMMARY"}
    - {name: two, if: steps.one.outputs.said, shell: bash,
       env: {SAID: "${{ steps.one.outputs.said }}"}, run: "
        echo \"::notice title=a%2Cb::$SAID $A ${B#*o}\"; [ ${PATH%%:*} = /opt/some ]; exit 3"}
    - {name: never, shell: bash, run: echo never}
    - {name: cleared, if: always(), shell: bash, run: echo cleared}
    - {name: failed, if: failure(), shell: bash, run: echo failed}
"""


def test_conditions_outputs_and_variables_are_those_of_the_runner(tmp_path):
    """Of `tests/action.py`, by which all the above is run."""
    (tmp_path / "action.yml").write_text(STEPS, encoding="utf-8")

    job = Runner(tmp_path, tmp_path / "runner").run(tmp_path, {"name": "a b"})

    assert job.ran == ["one", "two", "cleared", "failed"]
    assert (job.code, job.summary) == (3, "# one\n")
    assert job.outputs["one"] == {"said": "hello a b"}
    assert job.annotations == [Annotation("notice", {"title": "a,b"}, "hello a b 1 ")]
    assert "lines" in job.out
