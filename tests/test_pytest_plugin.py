import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from deep import deep

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
PLUGIN = "gradtool.pytest_plugin"
INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
SUITE = """
import onnx
import pytest

import gradtool as gt

MODEL = "models/deep.onnx"


@pytest.fixture
def model():
    return onnx.load(MODEL)


@pytest.mark.grad_memory(MODEL, peak="1MiB", plan="mirror", dims={"batch": 256})
def test_fits():
    pass


@pytest.mark.grad_memory(model=MODEL, peak="99KiB", plan="mirror", dims={"batch": 256})
def test_too_large():
    pass


@pytest.mark.grad_memory(model=MODEL, peak="100KiB", dims={"batch": [1, 256]})
def test_too_large_at_one_of_two_sizes():
    pass


@pytest.mark.grad_memory(peak="1MiB", activations="111KiB", batch=256)
def test_a_fixture_too_large_by_another_metric(model):
    assert model.graph.node


@pytest.mark.grad_memory(peak="1MiB", batch=256)
@pytest.mark.grad_memory(recomputed=0, nodes=5, batch=256)
def test_two_markers(model):
    pass


@pytest.mark.grad_memory(model=MODEL, peek="1MiB", batch=1)
def test_no_such_limit():
    pass


@pytest.mark.grad_memory(model=MODEL, plan="mirror", batch=1)
def test_no_limit():
    pass


@pytest.mark.grad_memory(model=MODEL, limit={"peak": "1KiB"}, nodes=9999, batch=256)
def test_too_large_for_a_limit_in_a_table():
    pass


@pytest.mark.grad_memory(model=MODEL, measured_arena="1KiB", batch=256)
def test_a_run_too_large():
    pass


@pytest.mark.grad_memory(peak="1MiB")
def test_no_model():
    pass


@pytest.mark.grad_memory(model="missing.onnx", peak="1MiB")
def test_a_missing_file():
    pass


@pytest.mark.grad_memory(model=MODEL, peak="1MiB", batch=256)
def test_body_still_runs():
    raise AssertionError("the body")


def test_the_fixture(grad_memory, model):
    graph = gt.grad(gt.load(MODEL, dims={"batch": 256}))
    found = [grad_memory(each, batch=256) for each in (MODEL, model)] + [grad_memory(graph)]

    assert len({each["peak"] for each in found}) == 1
    assert found[0]["peak"] == gt.plan(graph).peak
    assert grad_memory(MODEL, plan="mirror", batch=256)["peak"] < found[0]["peak"]


def test_the_fixture_over_its_limit(grad_memory):
    grad_memory(MODEL, peak="1KiB", batch=256)


def test_the_fixture_of_no_model(grad_memory):
    grad_memory(7)


def test_the_fixture_of_two_sizes(grad_memory):
    grad_memory(MODEL, dims={"batch": [1, 2]})
"""
PASS = {"test_fits", "test_the_fixture"}
ALL = {line[4:].partition("(")[0] for line in SUITE.splitlines() if line.startswith("def test_")}


def outcomes(found):
    return {
        line.split("::")[1].split(" ")[0]: line.split(" ")[0]
        for line in found.outlines
        if line.startswith(("PASSED ", "FAILED ", "ERROR "))
    }


@pytest.fixture
def suite(pytester):
    """Runs a test file in a process of its own, in a folder that has a model."""
    (pytester.path / "models").mkdir()
    (pytester.path / "models" / "deep.onnx").write_bytes(deep().SerializeToString())

    def run(text, *arguments):
        pytester.makepyfile(text)
        plugin = () if INSTALLED else ("-p", PLUGIN)
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", *arguments)

    return run


@pytest.mark.exhaustive
def test_markers_and_the_fixture_hold_limits(suite):
    found = suite(SUITE, "-rA", "--strict-markers", "-W", "error", "--tb=short")

    told = {name: outcome for name, outcome in outcomes(found).items() if name in ALL}
    assert {name for name, outcome in told.items() if outcome == "PASSED"} == PASS
    assert {name for name, outcome in told.items() if outcome == "FAILED"} == ALL - PASS
    found.stdout.fnmatch_lines_random(
        [
            "deep: peak is *: limit 99.0 KiB",
            "  16.0 KiB at the peak: * float32[[]256x16] *",
            "deep[[]batch=256]: peak is *: limit 100 KiB",
            "model: activations is *: limit 111 KiB",
            "model: nodes is 22: limit 5",
            "grad_memory: unknown argument 'peek'; did you mean 'peak'?",
            "grad_memory: nothing to check: give a limit, as in peak='2GiB'; there are peak, *",
            "deep: peak is *: limit 1.00 KiB",
            "deep: measured-arena is *: limit 1.00 KiB",
            "grad_memory: no model: give model=..., or a fixture 'model'",
            "*missing.onnx: no such file",
            "*AssertionError: the body",
            "grad_memory: 'int' is no model: give a path, *",
            "grad_memory: the fixture takes one size at a time",
        ]
    )
    assert "another exception" not in found.stdout.str()


@pytest.mark.exhaustive
def test_a_suite_that_does_not_use_it_does_not_pay_for_it(suite):
    found = suite(
        """
        import sys

        def test_nothing_is_imported():
            heavy = {"numpy", "onnx", "onnx_ir", "click", "rich", "gradtool.api", "gradtool.check"}
            assert not heavy & sys.modules.keys()
        """,
        "-W",
        "error",
    )

    found.assert_outcomes(passed=1)


def test_the_marker_is_described(suite):
    found = suite("", "--markers")

    found.stdout.fnmatch_lines(["@pytest.mark.grad_memory(model, peak, plan, dims, ...): *"])


def test_it_is_an_entry_point():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["entry-points"]["pytest11"] == {"gradtool": PLUGIN}


def test_it_can_be_imported_without_gradtools_dependencies():
    program = f"import sys, {PLUGIN}; assert 'numpy' not in sys.modules"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
