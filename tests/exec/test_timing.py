"""The time of each node: measured, written, read, and asked for by name."""

import json

import onnx_ir as ir
import pytest
from deep import deep

import gradtool as gt
from gradtool import shapes
from gradtool.errors import UsageError
from gradtool.exec import timing
from gradtool.program import profile
from gradtool.workloads.plans import workload


@pytest.fixture(scope="module")
def work():
    model = ir.from_proto(deep("4"))
    shapes.infer(model)
    return workload(gt.grad(model, loss="loss").model)


@pytest.fixture(scope="module")
def measured(work):
    return timing.at_random(work, 2)


def test_every_node_that_runs_has_a_time(work, measured):
    assert list(measured.nodes) == [step.name for step in work.program.steps]
    assert [timed.op for timed in measured.nodes.values()] == [s.op for s in work.program.steps]
    assert all(timed.seconds > 0 for timed in measured.nodes.values())
    assert measured.repeats == 2


def test_what_is_written_is_read(measured, tmp_path):
    profile.save(measured, tmp_path / "p.json")

    assert profile.load(tmp_path / "p.json") == measured


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": []}, "is no profile"),
        ({"kernels": "cuda"}, "its kernels are none of numpy, native, exact"),
        ({"kernels": ["numpy"]}, "its kernels are none of numpy, native, exact"),
        ({"repeats": "two"}, "is no profile"),
        ({"nodes": {"a": 1}}, "node 'a' needs an op and its seconds"),
        ({"nodes": {"a": {"op": "Relu", "seconds": -1}}}, "node 'a' needs"),
        ({"nodes": {"a": {"op": "Relu", "seconds": 1e300}}}, "node 'a' needs"),
        ({"nodes": {"a": {"op": None, "seconds": 1}}}, "node 'a' needs"),
    ],
)
def test_what_is_no_profile_is_refused(tmp_path, change, message):
    document = {"schema_version": 1, "repeats": 1, "nodes": {}} | change
    (tmp_path / "p.json").write_text(json.dumps(document))

    with pytest.raises(UsageError, match=message):
        profile.load(tmp_path / "p.json")
