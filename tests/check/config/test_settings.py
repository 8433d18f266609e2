"""Configurations: what they mean, and how a mistake in one is named."""

from __future__ import annotations

import pytest
from native_calls import FOUND

from gradtool.check import config
from gradtool.errors import UsageError

CASE = '[[case]]\nmodel = "a.onnx"\n'


@pytest.fixture
def load(tmp_path):
    def loaded(text, name="gradtool.toml"):
        (tmp_path / name).write_text(text)
        return config.load(tmp_path / name)

    return loaded


def test_a_case_needs_only_a_model(load):
    (case,) = load(CASE).cases

    assert (case.name, case.group, case.model, case.plan.text) == ("a", "a", "a.onnx", "keep")
    assert (dict(case.dims), dict(case.gradient), dict(case.limit)) == ({}, {}, {})
    assert [rule.text for rule in case.fail_on] == ["peak:1%+1MiB"]


def test_lists_of_sizes_are_a_case_for_each_combination(load):
    cases = load(CASE + "dims = { batch = [2, 4], seq = [8, 16], heads = 4 }").cases

    assert [case.name for case in cases] == [
        "a[batch=2,seq=8]", "a[batch=2,seq=16]", "a[batch=4,seq=8]", "a[batch=4,seq=16]",
    ]  # fmt: skip
    assert dict(cases[1].dims) == {"batch": 2, "seq": 16, "heads": 4}
    assert {case.group for case in cases} == {"a"}


def test_pyproject_and_a_file_of_its_own_mean_the_same(load):
    own = load('[check]\nbaseline = "b"\n' + CASE)
    shared = load(
        '[project]\nname = "x"\n[tool.gradtool.check]\nbaseline = "b"\n'
        '[[tool.gradtool.case]]\nmodel = "a.onnx"\n',
        "pyproject.toml",
    )

    assert [c.made_for for c in own.cases] == [c.made_for for c in shared.cases]
    assert own.baseline == shared.baseline
    assert (own.cases[0].line, shared.cases[0].line) == (3, 5)


def test_options_of_differentiation_are_those_of_grad(load):
    (case,) = load(
        CASE
        + 'loss = "ce:out"\nwrt = ["w*"]\nno-grad = "b"\ntrain-mode = ["head.*"]\nste = false\n'
        'labels = { out = "y" }\nshapes = { x = "2x3", y = [4] }\naccumulate = "sum"\n'
    ).cases

    assert case.gradient == {
        "loss": ["ce:out"], "wrt": ["w*"], "no_grad": ["b"], "train_mode": ["head.*"],
        "labels": {"out": "y"}, "accumulate": "sum",
    }  # fmt: skip
    assert case.shapes == {"x": (2, 3), "y": (4,)}


PLANS = {
    '"sqrt"': ("sqrt", {"strategy": "sqrt"}),
    '"p.json"': ("file", {"plan": "p.json"}),
    '{ budget = "60%" }': ("budget 60%", {"budget": "60%"}),
    "{ budget = 4096 }": ("budget 4096", {"budget": 4096}),
    '{ budget = "60%", solver = "cp-sat" }': ("budget 60%", {"budget": "60%"}),
    '{ strategy = "min-cut", max-slowdown = "20%" }': (
        "min-cut slowdown 20%",
        {"strategy": "min-cut", "max_slowdown": "20%"},
    ),
    '{ checkpoints = ["a", "b"] }': ("checkpoints a,b", {"checkpoints": ("a", "b")}),
    '{ policy = "dots", keep = "x" }': ("mirror dots keep x", {}),
}


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_a_name_a_file_or_a_table(load, plan):
    (case,) = load(CASE + f"plan = {plan}").cases

    assert (case.plan.text, dict(case.plan.asked)) == PLANS[plan]


def test_limits_are_in_the_unit_of_their_metric(load):
    (case,) = load(CASE + 'limit = { peak = "2.5GiB", nodes = 400, extra-flops = "7" }').cases

    assert case.limit == {"peak": 5 << 29, "nodes": 400, "extra-flops": 7}


def test_a_case_may_have_rules_of_its_own_or_none(load):
    text = '[check]\nfail-on = "peak:2%"\n' + CASE
    assert [r.text for r in load(text).cases[0].fail_on] == ["peak:2%"]
    assert [r.text for r in load(text + 'fail-on = ["load:0%"]').cases[0].fail_on] == ["load:0%"]
    assert load(text + "fail-on = []").cases[0].fail_on == ()


MISTAKES = {
    "an unknown table": ("[chek]\n", "unknown key 'chek'; did you mean 'check'?"),
    "an unknown key of check": (
        "[check]\nfailon = 1",
        "check: unknown key 'failon'; did you mean 'fail-on'?",
    ),
    "an unknown key of a case": (
        CASE + "modle = 1",
        "case 1: unknown key 'modle'; did you mean 'model'?",
    ),
    "no model": ("[[case]]\nname = 'a'", "case 1: has no model: write model = 'FILE.onnx'"),
    "a model of another type": ("[[case]]\nmodel = 3", "case 1: model is 3: write a text"),
    "one bracket": (
        "[case]\nmodel = 'a'",
        "case is {'model': 'a'}: write [[case]], with two brackets",
    ),
    "cases that are no tables": ("case = [1]", "case 1 is 1: write a table, { key = value }"),
    "a size that is text": (
        CASE + "dims = {batch = '8'}",
        "case 'a': dims: batch is '8': write a whole number, or a list of different ones",
    ),
    "a size below 0": (
        CASE + "dims = {batch = -1}",
        "case 'a': dims: batch is -1: write a whole number, or a list of different ones",
    ),
    "a size twice": (
        CASE + "dims = {batch = [2, 2]}",
        ("case 'a': dims: batch is [2, 2]: write a whole number, or a list of different ones"),
    ),
    "dims that are none": (
        CASE + "dims = 8",
        "case 'a': dims is 8: write a table, { key = value }",
    ),
    "an unknown plan": (
        CASE + "plan = 'miror'",
        (
            "case 'a': plan is 'miror': write one of keep, reorder, mirror, sqrt, segments, "
            "min-cut, optimal, a file NAME.json or a table; did you mean 'mirror'?"
        ),
    ),
    "an unknown key of a plan": (
        CASE + "plan = {bugdet = 1}",
        "case 'a': plan: unknown key 'bugdet'; did you mean 'budget'?",
    ),
    "two goals": (
        CASE + "plan = {budget = '6%', max-slowdown = '1%'}",
        (
            "case 'a': plan: say what to compute again by one thing: a budget cannot be "
            "combined with a slowdown"
        ),
    ),
    "a budget that is none": (
        CASE + "plan = {budget = '8G'}",
        "case 'a': plan: '8G' is ambiguous: write 8GiB (2^30) or 8GB (10^9)",
    ),
    "an unknown policy": (
        CASE + "plan = {policy = 'dot'}",
        (
            "case 'a': plan: policy is 'dot': write one of mirror, dots, cheap, or a file "
            "NAME.toml; did you mean 'dots'?"
        ),
    ),
    "a policy and a budget": (
        CASE + "plan = {policy = 'dots', budget = 1}",
        "case 'a': plan: budget cannot be combined with mirroring",
    ),
    "an unknown metric": (
        CASE + "limit = {peek = 1}",
        "case 'a': limit: there is no metric 'peek'; did you mean 'peak'?",
    ),
    "a bare unit": (
        CASE + "limit = {peak = '2G'}",
        "case 'a': limit: peak: '2G' is ambiguous: write 2GiB (2^30) or 2GB (10^9)",
    ),
    "bytes of a count": (
        CASE + "limit = {nodes = '2KiB'}",
        "case 'a': limit: nodes: '2KiB' is no number of steps, which nodes is in",
    ),
    "a limit of another type": (
        CASE + "limit = {peak = true}",
        "case 'a': limit: peak is True: write a number of bytes",
    ),
    "a rule that is none": (
        "[check]\nfail-on = ['peak']",
        "check: fail-on: 'peak' is no rule: write METRIC:AMOUNT, as in peak:1%+1MiB",
    ),
    "a rule of two shares": (
        "[check]\nfail-on = 'peak:1%+2%'",
        "check: fail-on: 'peak:1%+2%' has two amounts of a kind: write a share and an amount",
    ),
    "a flag that is text": (
        CASE + "ste = 'yes'",
        "case 'a': ste is 'yes': write true or false",
    ),
    "norms that are a number": (
        CASE + "train-mode = 3",
        "case 'a': train-mode is 3: write true or false, a glob or a list of globs",
    ),
    "an unknown way": (
        CASE + "accumulate = 'chian'",
        "case 'a': accumulate is 'chian': write one of chain, sum; did you mean 'chain'?",
    ),
    "a shape that is none": (
        CASE + "shapes = {x = '2xtwo'}",
        "case 'a': shapes: x is '2xtwo': write sizes, as in '32x3x224x224'",
    ),
    "globs of another type": (
        CASE + "wrt = [1]",
        "case 'a': wrt is [1]: write a text or a list of texts",
    ),
    "a baseline elsewhere": (
        "[check]\nbaseline = '../b'",
        (
            "check: baseline is '../b': write a folder beside the configuration, as in "
            "'gradtool-baseline'"
        ),
    ),
    "two cases of a name": (
        CASE + CASE,
        "cases 'a' and 'a' have the same baseline file: give one of them another name",
    ),
    "a name of control characters": (
        CASE + 'name = "a\\u001b[31m"',
        "case 1: name is 'a\\x1b[31m': write at most 100 characters, all of them printable",
    ),
    "an endless name": (
        CASE + f"name = '{'n' * 101}'",
        (
            "case 1: name is 'nnnnnnnnnnnnnnnnnnnnnnnnnnnn...nnnnnnnnnnnnnnnnnnnnnnnnnnn': write "
            "at most 100 characters, all of them printable"
        ),
    ),
}


def mistaken(text, tmp_path, run):
    """What `gradtool check` says of a configuration; one line, and exit code 2."""
    (tmp_path / "gradtool.toml").write_text(text)
    outcome = run("check")
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    return line.removeprefix("gradtool: gradtool.toml: ")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_the_file_and_the_key(run, tmp_path, mistake):
    text, message = MISTAKES[mistake]

    assert mistaken(text, tmp_path, run) == message


def test_what_is_no_toml_is_told_by_its_reader(run, tmp_path):
    assert mistaken("[check", tmp_path, run).startswith("is no TOML: Expected ']' at the end of")


def test_a_mistake_is_the_same_for_every_command_that_reads_the_configuration(run, tmp_path):
    (tmp_path / "gradtool.toml").write_text(CASE + "plan = 'miror'")

    said = [run(*command) for command in (("check",), ("report",), ("mirror", "--report"))]

    assert [outcome.code for outcome in said] == [2, 2, 2]
    assert len({outcome.err for outcome in said}) == 1


def test_a_case_names_the_kernels_that_it_is_planned_for(load):
    kinds = ("", 'kernels = "native"', 'kernels = "native"\nexact-conv = true')
    found = [load(CASE + lines).cases[0].planned_for for lines in kinds]

    assert found == ["exact" if FOUND else "numpy", "native", "exact"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('kernels = "magic"', "one of auto, numpy, native"),
        ("exact-conv = true", "kernels = 'native'"),
    ],
)
def test_kernels_that_mean_nothing_are_refused(load, lines, message):
    with pytest.raises(UsageError, match=message):
        load(CASE + lines)
