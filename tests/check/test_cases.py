"""Cases: their file names, and how they are chosen."""

from __future__ import annotations

import re

import pytest
from gates import case
from hypothesis import given
from hypothesis import strategies as st

from gradtool.check.cases import chosen
from gradtool.errors import UsageError


@pytest.mark.parametrize(
    ("name", "slug"),
    [("resnet50", "resnet50"), ("r[batch=8,seq=16]", "r-batch-8-seq-16"), ("a.b_c-d", "a.b_c-d")],
)
def test_plain_names_are_plain_files(name, slug):
    assert case(name).slug == slug


@pytest.mark.exhaustive
@given(name=st.text(min_size=1))
def test_every_name_is_a_file_that_every_system_has(name):
    slug = case(name.encode("utf-8", "replace").decode()).slug

    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}", slug)
    assert not slug.endswith(".")


@pytest.mark.parametrize("name", ["../x", "a/b", "CON:", ".hidden", "a b", "ä", "x" * 100])
def test_other_names_have_a_mark_of_their_own(name):
    assert re.search(r"-[0-9a-f]{8}$", case(name).slug)


def test_cases_keep_their_order_whatever_the_order_of_the_names():
    cases = [case("b"), case("a"), case("a2", group="a")]

    assert [c.name for c in chosen(cases, ["a", "b"])] == ["b", "a", "a2"]
    assert [c.name for c in chosen(cases, ["a*"])] == ["a", "a2"]
    assert chosen(cases, []) == cases
    with pytest.raises(UsageError, match="no case 'c'; there are b, a, a2"):
        chosen(cases, ["c"])
