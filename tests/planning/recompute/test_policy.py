"""Policies by name and from files, and steps marked by name."""

from __future__ import annotations

import pytest
from programs import program
from training_programs import chain

from gradtool.errors import UsageError
from gradtool.graph.composites import DOMAIN
from gradtool.graph.families import full_name
from gradtool.ops.kernels import kernels
from gradtool.ops.traits import TRAITS
from gradtool.planning.recompute.policy import POLICIES, marks, policy_named

STEPS = program(
    "a = MatMul x w", "b = Exp a", "c = Softmax b", "d = Concat c b", outputs="d", parameters="w"
).steps


def allowed(policy):
    return [step.op for step in STEPS if policy(step)]


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("mirror", ["Exp", "Softmax"]),
        ("dots", ["Exp", "Softmax", "Concat"]),
        ("cheap", ["Exp"]),
    ],
)
def test_what_each_policy_runs_twice(name, ops):
    assert allowed(policy_named(name)) == ops


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_policy_says_its_reason_and_where_it_is_from_in_one_line(policy):
    assert str(policy) == f"{policy.name}: {policy.reason} ({policy.source})"
    assert len(str(policy).splitlines()) == 1
    assert policy.source


def test_operators_with_a_class_exist():
    """A name with a typing error would never be met."""
    known = {full_name(k.domain, k.op) for k in kernels()} | {"Constant"}
    classes = {full_name(t.domain, t.op): t.recompute for t in TRAITS.entries() if t.recompute}

    assert classes.keys() <= known
    for op in ("ConvGradInput", "LSTMGrad", "FusedAttentionGrad"):
        assert classes[f"{DOMAIN}::{op}"] == "product"


def test_a_file_changes_a_policy(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "mirror"\nkeep = ["Softmax"]\ndrop = ["MatMul"]\nreason = "mine"\n')
    policy = policy_named(str(path))

    assert allowed(policy) == ["MatMul", "Exp"]
    assert str(policy) == f"mine: mine ({path})"


def test_a_file_changes_a_policy_that_lists_what_may_run_twice(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('base = "cheap"\nkeep = ["Exp"]\ndrop = ["Concat"]\n')

    assert allowed(policy_named(str(path))) == ["Concat"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kep = []", "'kep' is not base, keep, drop or reason"),
        ("base = 'all'", "base is one of mirror, dots, cheap"),
        ("base = 3", "base is one of"),
        ("keep = 'Exp'", r'keep is a list of operators, as \["Softmax"\]'),
        ("drop = [1]", "drop is a list of operators"),
        ("keep = ['Exp']\ndrop = ['Exp']", "both in keep and in drop: Exp"),
        ("keep = [", "is no TOML"),
    ],
)
def test_a_file_that_is_no_policy(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=message):
        policy_named(str(path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("miror", "no policy 'miror'; did you mean 'mirror'"),
        ("absent.toml", "absent.toml: cannot be read: No such file"),
    ],
)
def test_a_policy_that_does_not_exist(name, message):
    with pytest.raises(UsageError, match=message):
        policy_named(name)


def test_marks_name_forward_steps_by_themselves_or_by_what_they_compute():
    found = marks(chain(2), keep=["h[12]"], drop=["h4"])

    assert found.keep == {"h1", "h2"}
    assert found.drop == {"h4"}


@pytest.mark.parametrize(
    ("globs", "message"),
    [
        ({"keep": ["h9"]}, "--keep h9: no forward value or node has that name"),
        ({"drop": ["g*"]}, r"--drop g\*: no forward value"),
        ({"keep": ["h*"], "drop": ["h1"]}, "both kept and dropped: h1"),
    ],
)
def test_marks_that_match_nothing_or_contradict_each_other(globs, message):
    with pytest.raises(UsageError, match=message):
        marks(chain(2), **globs)
