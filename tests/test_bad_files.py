"""Files that ask for too much or for what cannot be: refused in one line, at little cost."""

import bad_bodies
import bad_sizes
import pytest
from conftest import TINY, build, sampled, tiny_weights
from limited import ended, warm

REFUSED = bad_sizes.REFUSED | bad_bodies.REFUSED
VALID = bad_sizes.LARGE | bad_bodies.VALID
COMMANDS = {
    "grad": ("grad", "m.onnx", "-o", "o.onnx", "--force"),
    "run": ("run", "m.onnx"),
    "report": ("report", "m.onnx"),
    "mirror": ("mirror", "m.onnx", "-o", "o.onnx", "--force"),
    "mirror --report": ("mirror", "m.onnx", "--report"),
    "recompute": ("recompute", "m.onnx", "--budget", "60%", "-o", "o.onnx", "--force"),
    "compare": ("compare", "m.onnx", "m.onnx"),
    "check": ("check", "--allow-new"),
    "ops": ("ops", "m.onnx"),
    "init": ("init", "m.onnx", "--force"),
}
GOOD = build(TINY.replace("batch", "2"), **tiny_weights())
CASE = 'name = "m"\nmodel = "m.onnx"\nlimit = { peak = "1GiB" }\n'


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """Everything that commands import is imported."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "m.onnx").write_bytes(GOOD.SerializeToString())
    warm(COMMANDS.values(), folder)


@pytest.fixture
def outcome(warmed, tmp_path):  # noqa: ARG001 - imported for its effect
    """How a command ends on a model, in a process of its own."""

    def run(make, command):
        (tmp_path / "m.onnx").write_bytes(make().SerializeToString())
        (tmp_path / "gradtool.toml").write_text(f"[[case]]\n{CASE}")
        return ended(COMMANDS[command], tmp_path)

    return run


def _one_line(text: str) -> str:
    last = text.strip().splitlines()[-1]
    assert last.startswith("gradtool: ")
    return last


@pytest.mark.sample(4, 3)
@pytest.mark.parametrize("name", sampled(REFUSED))
def test_a_file_that_cannot_run_is_refused_in_one_line(outcome, name):
    for command in ("grad", "run"):
        found = outcome(REFUSED[name], command)

        assert not found.defect()
        assert found.code in (2, 3)
        assert _one_line(found.err)


@pytest.mark.sample(3, 2)
@pytest.mark.parametrize("name", sampled(VALID))
def test_a_valid_file_is_read_and_runs_where_there_is_room_and_an_end(outcome, name):
    found = outcome(VALID[name], "grad")

    assert not found.defect()
    assert found.code == 0

    found = outcome(VALID[name], "run")

    assert not found.defect()
    assert found.code in (0, 2, 4)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_fails_on_any_of_them(outcome, command):
    defects = {
        name: found.defect()
        for name, make in {**REFUSED, **VALID}.items()
        if (found := outcome(make, command)).defect()
    }

    assert defects == {}


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_ends_well_on_a_good_file(outcome, command):
    found = outcome(lambda: GOOD, command)

    assert not found.defect()
    assert found.code in (0, 1)  # 1: the budget is below what it takes
