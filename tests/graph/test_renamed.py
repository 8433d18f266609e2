"""What is asked of sizes is answered once for all that differ by the names of symbols."""

from __future__ import annotations

import itertools

import onnx_ir as ir
import pytest

from gradtool.graph.renamed import names_in, renamed, whatever_named
from gradtool.shapes import contents, slices

TEXTS = ("a", "a - 1", "2*a + b", "floor(a/2 + b/2)", "Max(a, b - 3)", "Mod(a, 4) + 1", "a*b - c")
NAMES = list(itertools.permutations(["n10", "n9", "B", "_s0123456789abcdef", "x.y"], 3))


def size(text, names=("a", "b", "c")):
    made = ir.SymbolicDim(text)
    return renamed(made, dict(zip("abc", names, strict=True)))


@pytest.mark.sample(6)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("names", NAMES)
def test_a_size_with_other_names_is_that_of_its_text(text, names):
    names = sorted(names)
    first = ir.SymbolicDim(text)
    kept = ir.SymbolicDim(first._expr)

    found = renamed(kept, dict(zip("abc", names, strict=True)))

    assert found == ir.SymbolicDim(ir.SymbolicDim(found.value)._expr)
    assert found._expr == ir.SymbolicDim(found.value)._expr
    assert names_in([found]) == sorted(names[: len(names_in([first]))])


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("names", NAMES)
def test_an_answer_is_that_for_the_own_names(text, names):
    of = size(text, names)
    asked = [
        (contents._compare, (of, 0, "is_nonnegative", "is_negative")),
        (contents._least, (contents._counted, of, 1, size("a + b", names))),
        (slices._rest, (of, 3)),
        (slices._clamped, (of, 1, 7, 2)),
    ]
    for function, given in asked:
        assert function(*given) == function.__wrapped__(*given)


def test_one_answer_serves_all_names():
    calls = []

    @whatever_named
    def more(a, b):
        calls.append(a)
        return a + b

    found = [more(ir.SymbolicDim(f"n{i}"), 2) for i in range(9)]

    assert found == [f"n{i} + 2" for i in range(9)]
    assert len(calls) == 1


def test_what_may_be_negative_is_asked_by_its_name():
    assert contents.is_nonnegative(ir.SymbolicDim("n0"))
    assert not contents.is_nonnegative(ir.SymbolicDim("_v_d0"))
