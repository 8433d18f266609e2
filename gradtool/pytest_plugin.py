"""Memory limits in a test suite: the marker and the fixture `grad_memory`.

    @pytest.mark.grad_memory(model="models/resnet50.onnx", peak="2GiB", dims={"batch": 32})
    def test_resnet50_fits(): ...

    @pytest.mark.grad_memory(peak="2GiB", plan="mirror")   # of the fixture `model`
    def test_a_model_that_is_made_here(model): ...

    def test_two_sizes(grad_memory):
        assert grad_memory(model, batch=2)["peak"] < 2 * grad_memory(model, batch=1)["peak"]

Arguments are the keys of a `[[tool.gradtool.case]]`, with `_` for `-`; limits are metrics by name.
A model is a path from pytest's root folder, an `onnx.ModelProto` or a graph of gradtool.  Nothing
of gradtool is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gradtool.check import Metrics

MARKER = "grad_memory"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(model, peak, plan, dims, ...): fail if a training step of the model is planned "
        "to take more memory; limits are metrics by name, the rest is as in a case of gradtool.",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Hold the limits of the markers before the test runs, when its fixtures are there."""
    for mark in item.iter_markers(MARKER):
        _hold(item, mark)


@pytest.fixture
def grad_memory(request: pytest.FixtureRequest) -> Callable[..., Metrics]:
    """A function of a model and of what the marker takes: its metrics; a limit fails the test."""
    root = request.config.rootpath

    def measure(model: Any, **arguments: Any) -> Metrics:
        found = _checked(model, arguments, root)
        if len(found) > 1:
            pytest.fail(f"{MARKER}: the fixture takes one size at a time", pytrace=False)
        return found[0]

    return measure


def _hold(item: pytest.Item, mark: pytest.Mark) -> None:
    arguments = dict(mark.kwargs)
    if len(mark.args) > 1 or (mark.args and "model" in arguments):
        pytest.fail(f"{MARKER}: one model is named, the rest by keyword", pytrace=False)
    named = mark.args[0] if mark.args else arguments.pop("model", None)
    model = getattr(item, "funcargs", {}).get("model") if named is None else named
    if model is None:
        pytest.fail(f"{MARKER}: no model: give model=..., or a fixture 'model'", pytrace=False)
    _checked(model, arguments, item.config.rootpath, required=True)


def _checked(
    model: Any, arguments: dict[str, Any], root: Path, *, required: bool = False
) -> list[Metrics]:
    """The metrics of a model at each size asked for; fails the test if a limit is exceeded.

    Or if there is no limit where one is `required`.
    """
    from gradtool.check.limits import over_limits
    from gradtool.errors import GradtoolError

    found: list[Metrics] = []
    try:
        found, told = over_limits(model, arguments, root, required=required)
    except GradtoolError as error:
        told = [str(error)]
    if told:
        pytest.fail("\n".join(told), pytrace=False)
    return found
