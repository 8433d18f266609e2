"""Random operator cases: one of each operator, and forty with `-m slow`.

`python benchmarks/operator_cases.py NAME` judges the case of a name again.
"""

from __future__ import annotations

import pytest
from conftest import sampled
from drawn import every
from drawn.case import DRAWERS, draw
from drawn.judge import judge

from gradtool.ops import gradients

pytest.importorskip("onnxruntime")
OPERATORS = sorted(DRAWERS)


def check(name: str) -> None:
    verdict = judge(draw(name))

    assert not verdict.wrong, f"{verdict.text}: {'; '.join(verdict.wrong)}"


@pytest.mark.parametrize("op", sampled(OPERATORS))
def test_a_drawn_case_of_each_operator(op):
    check(f"{op}:2")


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS)
def test_many_drawn_cases_of_each_operator(op):
    for name in every.names(40, [op]):
        check(name)


def test_every_operator_with_a_gradient_is_drawn():
    rules = {r.name for r in gradients.rules() if not r.zero and "gradtool" not in r.domain}

    assert sorted(rules - set(DRAWERS)) == sorted(every.ELSEWHERE)


def test_a_case_is_drawn_again_by_its_name():
    assert all(str(draw(name)) == str(draw(name)) for name in every.names(2))
