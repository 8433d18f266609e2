import json

import pytest
from deep import deep

import gradtool as gt
from gradtool.comparison import snapshots as sides
from gradtool.errors import UsageError
from gradtool.workloads import strategies
from gradtool.workloads.plans import workload


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "deep.onnx"
    path.write_bytes(deep("256").SerializeToString())
    return workload(gt.grad(gt.load(path)).model)


@pytest.fixture
def read(tmp_path):
    def sides_of(document):
        path = tmp_path / "found.json"
        path.write_text(json.dumps({"schema_version": 1} | document), encoding="utf-8")
        return sides.read_snapshots(path)

    return sides_of


@pytest.mark.parametrize("name", list(strategies.STRATEGIES))
def test_every_part_of_a_plan_adds_up_to_its_peak(work, name):
    plan = strategies.STRATEGIES[name](work).plan

    side = sides.of_plan("deep", plan, work.kept)

    held = sum(plan.regions(plan.peak_step).values())
    assert side.totals["peak"] == plan.peak == sum(side.parts["region"].values())
    assert sum(side.parts["operator"].values()) == held
    assert sum(tensor.held for tensor in side.tensors.values()) == held
    assert side.totals["recomputed"] == sum(side.parts["node"].values())


def test_plans_of_one_model_have_the_same_tensors_or_some_in_place(work):
    kept, mirrored = (
        sides.of_plan("deep", strategy(work).plan, work.kept)
        for strategy in (strategies.keep, strategies.mirror)
    )

    assert set(mirrored.tensors) <= set(kept.tensors) | kept.in_place
    assert set(kept.tensors) <= set(mirrored.tensors) | mirrored.in_place


def test_a_plan_file_tells_what_runs_again(read):
    (side,) = read({"order": ["a", "b", "a", "a"], "peak_bytes": 5})

    assert side.totals == {"peak": 5, "nodes": 4, "recomputed": 2}
    assert side.parts == {"node": {"a": 2}}


def test_a_check_tells_its_cases_but_for_those_that_failed_to_plan(read):
    cases = [{"case": "a", "metrics": {"peak": 7}}, {"case": "b", "metrics": None}]

    (side,) = read({"cases": cases})

    assert (side.name, side.totals, side.known) == ("a", {"peak": 7}, ())


@pytest.mark.parametrize(
    "document",
    [
        {"order": [1]},
        {"order": 7},
        {"cases": [7]},
        {"cases": [{"metrics": {"peak": 1}}]},
        {"models": 7},
        {"models": [{"alive": [{"name": "x", "bytes": "8", "region": "", "shape": None}]}]},
        {"model": "m", "plans": [{}]},
        {"metrics": {}, "tensors": []},
        {},
    ],
)
def test_a_damaged_file_is_an_error_of_one_line(read, document):
    with pytest.raises(UsageError) as error:
        read(document)

    assert "found.json: is " in str(error.value) or "is no baseline" in str(error.value)
    assert "\n" not in str(error.value)
