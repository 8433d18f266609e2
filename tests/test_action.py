"""The composite action and the pre-commit hook, run as their runners do, without a network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repository import Repository, environment, network

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
MISSING = [name for name in ("bash", "git") if shutil.which(name) is None]
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    printf '#!/bin/sh\\nexec "{python}" -m gradtool "$@"\\n' > "$3/bin/gradtool"
    chmod +x "$3/bin/gradtool"
else
    echo "$@" >> "{log}"
fi
"""

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")


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
def action(tmp_path):
    """Runs the steps of the action in a folder; `python` makes an environment of nothing."""
    runner = tmp_path / "runner"
    runner.mkdir()
    python = runner / "python"
    log = runner / "installed"
    python.write_text(PYTHON.format(python=sys.executable, log=log), encoding="utf-8")
    python.chmod(0o755)

    def run(folder: Path, **inputs: str):
        given = {name: each["default"] for name, each in ACTION["inputs"].items()}
        given |= {"python": str(python)} | {n.replace("_", "-"): v for n, v in inputs.items()}
        shared = {
            "RUNNER_TEMP": str(runner),
            "GITHUB_ENV": str(runner / "env"),
            "GITHUB_STEP_SUMMARY": str(runner / "summary.md"),
        }
        for step in STEPS:
            kept = dict(
                line.split("=", 1)
                for line in (runner / "env").read_text(encoding="utf-8").splitlines()
            ) if (runner / "env").exists() else {}  # fmt: skip
            variables = {name: resolved(text, given) for name, text in step["env"].items()}
            where = folder / resolved(step.get("working-directory", "."), given)
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=where,
                env=environment(**shared, **kept, **variables),
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            if done.returncode:
                return done
        return done

    run.log, run.summary = log, runner / "summary.md"
    return run


def resolved(text: str, inputs: dict[str, str]) -> str:
    """What GitHub puts in the place of an expression."""
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known["github.action_path"] = str(ROOT)
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: known[found[1]], text)


def test_a_repository_as_it_was_recorded_passes(repository, action):
    done = action(repository.path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "2 cases checked, none failed" in done.stdout
    assert "| small | mirror |" in action.summary.read_text(encoding="utf-8")
    assert action.log.read_text(encoding="utf-8").split()[-1] == str(ROOT)


def test_growth_fails_with_an_annotation(repository, action):
    repository.write("large.onnx", network(64))

    done = action(repository.path, sarif="out.sarif", junit="out.xml")

    assert done.returncode == 1
    assert re.search(r"^::error file=gradtool.toml,line=\d+.*large", done.stdout, re.MULTILINE)
    assert "GREW" in action.summary.read_text(encoding="utf-8")
    assert (repository.path / "out.sarif").stat().st_size
    assert (repository.path / "out.xml").stat().st_size


def test_cases_and_rules_are_one_a_line(repository, action):
    repository.write("large.onnx", network(64))

    assert action(repository.path, cases="small\n").returncode == 0
    rules = "peak:1000%+1MiB\nnodes:1\n"
    assert action(repository.path, cases="small\nlarge", fail_on=rules).returncode == 0


def test_flags_are_passed_on(repository, action):
    shutil.rmtree(repository.path / "gradtool-baseline")

    assert action(repository.path, cases="small").returncode == 1
    assert action(repository.path, cases="small", allow_new="true").returncode == 0


def test_the_base_is_fetched_into_a_shallow_clone(repository, action, tmp_path):
    base = repository.git("rev-parse", "HEAD")
    repository.write("large.onnx", network(64))
    repository.commit("Widen")
    clone = tmp_path / "clone"
    url = f"file://{repository.path}"
    repository.git("clone", "--quiet", "--depth=1", url, str(clone))

    done = action(clone, base=base, cases="large")

    assert done.returncode == 1, done.stderr
    assert f"1 case checked against {base}, 1 failed" in done.stdout


def test_inputs_are_data_and_no_commands(repository, action):
    hostile = "$(touch pwned)`touch pwned`'; touch pwned; '\""

    done = action(repository.path, cases=f"{hostile}\n--help", fail_on="")

    assert done.returncode == 2
    assert "no case" in done.stderr
    assert not list(repository.path.rglob("pwned"))


def test_no_expression_is_part_of_a_script():
    assert [step["name"] for step in STEPS if "${{" in step["run"]] == []


def test_it_uses_no_action_of_others_and_uploads_nothing():
    assert [step for step in STEPS if "uses" in step] == []
    assert not re.search(r"curl|wget|upload", " ".join(step["run"] for step in STEPS))


def test_every_input_is_used_and_described():
    used = re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text(encoding="utf-8"))

    assert set(used) == set(ACTION["inputs"])
    assert all(each["description"] for each in ACTION["inputs"].values())


@pytest.mark.parametrize(
    ("file", "matters"),
    [
        ("models/net.onnx", True),
        ("net.onnx.data", True),
        ("gradtool.toml", True),
        ("sub/pyproject.toml", True),
        ("gradtool-baseline/net.json", True),
        ("src/net.py", False),
        ("notgradtool.toml", False),
    ],
)
def test_the_hook_runs_for_models_configurations_and_baselines(file, matters):
    (hook,) = HOOKS

    assert bool(re.search(hook["files"], file)) == matters


def test_the_hook_fails_for_a_model_that_grew(repository):
    (hook,) = HOOKS
    program, *arguments = hook["entry"].split()
    assert program == "gradtool"
    assert (hook["language"], hook["pass_filenames"]) == ("python", False)

    repository.write("large.onnx", network(64))
    done = repository.gradtool(*arguments)

    assert done.returncode == 1
    assert "GREW" in done.stdout
