"""Baselines: small files that read back, the same bytes everywhere."""

from __future__ import annotations

import json

import pytest
from gates import case, metrics, operator, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtool.check import Metrics, baselines
from gradtool.errors import GradtoolError, UsageError

NAMES = st.text(max_size=30)
SIZES = st.integers(0, 1 << 60)
TENSORS = st.builds(tensor, SIZES, op=NAMES, shape=st.tuples(SIZES), dtype=NAMES, again=SIZES)
METRICS = st.builds(
    metrics,
    st.dictionaries(NAMES, TENSORS, max_size=4),
    st.dictionaries(NAMES, st.builds(operator, SIZES, SIZES, SIZES, SIZES, SIZES), max_size=4),
    SIZES,
    peak=SIZES,
)


@pytest.mark.exhaustive
@settings(deadline=None)
@given(found=METRICS)
def test_what_is_written_reads_back(found):
    text = baselines.text(case(), found)

    assert Metrics.read(json.loads(text), "") == found
    assert text.isascii()


def test_a_case_is_a_file(tmp_path):
    found = metrics({"a": tensor()}, peak=5)
    checked = case(dims={"batch": 2}, gradient={"loss": ["ce"]})
    baselines.write(tmp_path / "b", [(checked, found)])

    read = baselines.read(tmp_path / "b", checked)

    assert (read.metrics, read.made_for) == (found, checked.made_for)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["net.json"]


def test_a_tensor_is_a_line_and_keys_are_sorted():
    found = metrics({"b": tensor(), "a": tensor()}, {"Relu": operator()}, peak=5)

    lines = baselines.text(case(), found).splitlines()

    assert [line[:6] for line in lines if line.startswith('  "')] == [
        '  "pea', '  "Rel', '  "a":', '  "b":',
    ]  # fmt: skip
    assert list(json.loads("\n".join(lines))) == sorted(json.loads("\n".join(lines)))


def test_what_is_measured_or_said_is_no_part_of_it():
    found = metrics({"a": tensor()}, kept={"a": "why"}, peak=1, measured_peak=2)

    assert baselines.text(case(), found) == baselines.text(case(), metrics(found.tensors, peak=1))


def test_only_what_changed_is_written(tmp_path):
    one, two = case("one"), case("two")
    baselines.write(tmp_path, [(one, metrics(peak=1)), (two, metrics(peak=1))])

    changed = baselines.write(tmp_path, [(one, metrics(peak=1)), (two, metrics(peak=2))])

    assert [c.name for c in changed] == ["two"]


def test_a_plan_that_the_clock_cut_short_writes_nothing(tmp_path):
    short = Metrics({"peak": 1}, {}, {}, cut_short=True)

    with pytest.raises(GradtoolError, match="'two': its plan was cut short by time"):
        baselines.write(tmp_path / "b", [(case("one"), metrics(peak=1)), (case("two"), short)])

    assert not (tmp_path / "b").exists()


def test_a_case_without_a_file_has_no_baseline(tmp_path):
    assert baselines.read(tmp_path, case()) is None


BAD = {
    "no JSON": "{",
    "another version": '{"schema_version": 2}',
    "nothing in it": '{"schema_version": 1}',
    "tensors that are none": '{"schema_version": 1, "left_out": 0, "metrics": {}, "operators": {},'
    ' "tensors": {"a": {"op": 1}}}',
    "operators that are none": '{"schema_version": 1, "left_out": 0, "metrics": {}, "operators": '
    '{"a": {"nodes": "x"}}, "tensors": {}}',
    "metrics that are none": '{"schema_version": 1, "left_out": 0, "metrics": [], "operators": {},'
    ' "tensors": {}}',
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_none_is_refused(tmp_path, name):
    (tmp_path / "net.json").write_text(BAD[name])

    with pytest.raises(UsageError, match=r"net\.json: (is no|has no)"):
        baselines.read(tmp_path, case())


def test_files_of_no_case_are_found(tmp_path):
    for name in ("net.json", "old.json", "notes.txt"):
        (tmp_path / name).write_text("")

    assert baselines.orphans(tmp_path, [case()]) == ["old.json"]
