"""Configurations: what they mean, and how a mistake in one is named."""

from __future__ import annotations

import pytest

from gradtool import config
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
        CASE + 'loss = "ce:out"\nwrt = ["w*"]\nno-grad = "b"\ntrain-mode = true\nste = false\n'
        'labels = { out = "y" }\nshapes = { x = "2x3", y = [4] }\naccumulate = "sum"\n'
    ).cases

    assert case.gradient == {
        "loss": ["ce:out"], "wrt": ["w*"], "no_grad": ["b"], "train_mode": True,
        "labels": {"out": "y"}, "accumulate": "sum",
    }  # fmt: skip
    assert case.shapes == {"x": (2, 3), "y": (4,)}


PLANS = {
    '"sqrt"': ("sqrt", {"strategy": "sqrt"}),
    '"p.json"': ("file", {"plan": "p.json"}),
    '{ budget = "60%" }': ("budget 60%", {"budget": "60%"}),
    "{ budget = 4096 }": ("budget 4096", {"budget": 4096}),
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
    "no TOML": ("[check", "is no TOML: "),
    "an unknown table": ("[chek]\n", "unknown key 'chek'; did you mean 'check'?"),
    "an unknown key of check": ("[check]\nfailon = 1", "unknown key 'failon'; did you mean 'fail"),
    "an unknown key of a case": (CASE + "modle = 1", "case 1: unknown key 'modle'; did you mean"),
    "no model": ("[[case]]\nname = 'a'", "case 1: has no model: write model = 'FILE.onnx'"),
    "a model of another type": ("[[case]]\nmodel = 3", "model is 3: write a text"),
    "one bracket": ("[case]\nmodel = 'a'", "case is {'model': 'a'}: write [[case]], with two"),
    "cases that are no tables": ("case = [1]", "case 1 is 1: write a table"),
    "a size that is text": (CASE + "dims = {batch = '8'}", "dims: batch is '8': write a positive"),
    "a size of nothing": (CASE + "dims = {batch = 0}", "dims: batch is 0: write a positive whole"),
    "a size twice": (CASE + "dims = {batch = [2, 2]}", "or a list of different ones"),
    "dims that are none": (CASE + "dims = 8", "dims is 8: write a table"),
    "an unknown plan": (
        CASE + "plan = 'miror'",
        "plan is 'miror': write one of keep, none, mirror",
    ),
    "an unknown key of a plan": (CASE + "plan = {bugdet = 1}", "did you mean 'budget'?"),
    "two goals": (CASE + "plan = {budget = '6%', max-slowdown = '1%'}", "do not go together"),
    "a budget that is none": (CASE + "plan = {budget = '8G'}", "'8G' is ambiguous: write 8GiB"),
    "an unknown policy": (CASE + "plan = {policy = 'dot'}", "did you mean 'dots'?"),
    "a policy and a budget": (CASE + "plan = {policy = 'dots', budget = 1}", "do not go together"),
    "an unknown metric": (CASE + "limit = {peek = 1}", "there is no metric 'peek'; did you mean"),
    "a bare unit": (CASE + "limit = {peak = '2G'}", "limit: peak: '2G' is ambiguous"),
    "bytes of a count": (CASE + "limit = {nodes = '2KiB'}", "'2KiB' is no number of steps"),
    "a limit of another type": (CASE + "limit = {peak = true}", "limit: peak is True: write"),
    "a rule that is none": ("[check]\nfail-on = ['peak']", "fail-on: 'peak' is no rule: write"),
    "a rule of two shares": ("[check]\nfail-on = 'peak:1%+2%'", "has two amounts of a kind"),
    "a flag that is text": (
        CASE + "train-mode = 'yes'",
        "train-mode is 'yes': write true or false",
    ),
    "an unknown way": (
        CASE + "accumulate = 'chian'",
        "write one of chain, sum; did you mean 'chain'",
    ),
    "a shape that is none": (CASE + "shapes = {x = '2xtwo'}", "shapes: x is '2xtwo': write sizes"),
    "globs of another type": (CASE + "wrt = [1]", "wrt is [1]: write a text or a list of texts"),
    "a baseline elsewhere": (
        "[check]\nbaseline = '../b'",
        "baseline is '../b': write a folder beside",
    ),
    "two cases of a name": (CASE + CASE, "cases 'a' and 'a' have the same baseline file"),
    "a name of control characters": (CASE + 'name = "a\\u001b[31m"', "name is 'a\\x1b[31m': write"),
    "an endless name": (CASE + f"name = '{'n' * 101}'", "write at most 100 characters"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_with_the_file_and_the_key(load, tmp_path, mistake):
    text, message = MISTAKES[mistake]

    with pytest.raises(UsageError) as raised:
        load(text)

    said = str(raised.value)
    assert message in said
    assert said.startswith(f"{tmp_path}/gradtool.toml: ")
    assert "\n" not in said
    assert raised.value.exit_code == 2


def test_a_mistake_reaches_the_user_as_one_line(run, tmp_path):
    (tmp_path / "gradtool.toml").write_text(CASE + "plan = 'miror'")

    for command in ("check", "report"):
        outcome = run(command)

        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("gradtool: gradtool.toml: case 'a': plan is 'miror': write ")
        assert outcome.err.count("\n") == 1
