import onnx_ir as ir
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st

from gradtool.errors import UsageError
from gradtool.io.expressions import parse
from gradtool.io.solving import Known, solve


def known(*pairs):
    return [Known("input 'x'", 0, ir.SymbolicDim(text), size) for text, size in pairs]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("2*N", 8)], {"N": 4}),
        ([("10 - N", 4)], {"N": 6}),
        ([("N**2", 49)], {"N": 7}),
        ([("3*N/2", 6)], {"N": 4}),
        ([("M + N", 7), ("M", 3)], {"M": 3, "N": 4}),
        ([("M*N", 6), ("M + 1", 3)], {"M": 2, "N": 3}),
        ([("floor(H/2 - 3/2) + 1", 5), ("H", 12)], {"H": 12}),
        ([("floor(H/2)", 5), ("floor(H/3)", 3)], {}),
        ([("floor(H/2)", 5), ("floor(2*H/3)", 6)], {"H": 10}),
        ([("floor(H/2)", 5), ("H + W", 13), ("floor(2*H/3)", 7), ("W", 2)], {"H": 11, "W": 2}),
        ([("floor(H/2)", 5)], {}),
        ([("Max(3, N)", 3)], {}),
        ([("Max(3, N)", 8)], {"N": 8}),
        ([("Mod(N, 4)", 3)], {}),
        ([("N", 0), ("2*N", 0)], {"N": 0}),
    ],
)
def test_what_sizes_decide_is_found_and_nothing_else(pairs, expected):
    assert solve(known(*pairs)) == expected
    assert solve(known(*reversed(pairs))) == expected


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("N", 3), ("N", 4)], "input 'x': N is given as 3 and as 4"),
        ([("N", 4), ("2*N", 9)], r"size 9 on axis 0, the model takes 2\*N = 8 \(N = 4\)"),
        ([("2*N", 7)], r"size 7 on axis 0, the model takes 2\*N, which no N makes"),
        ([("N + 5", 3)], r"the model takes N \+ 5, which no N makes"),
        ([("floor(H/2)", 5), ("floor(H/3)", 9)], "; H is 10 to 11 elsewhere"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(pairs, message):
    with pytest.raises(UsageError, match=message):
        solve(known(*pairs))


EXPRESSIONS = [
    "N", "2*N", "N + 1", "3*N - 2", "N/2", "floor(N/2)", "floor(N/3 - 1/3) + 1", "-floor(-N/2)",
    "N**2", "Max(N, 4)", "Min(N, 9)", "50 - N", "N*M", "N + M", "2*N + 3*M", "floor((N + M)/4)",
    "Mod(N, 3)", "M", "floor(N/2) + floor(N/3)", "4*floor(N/4)",
]  # fmt: skip


@settings(max_examples=trials(150), deadline=None)
@given(
    st.lists(st.sampled_from(EXPRESSIONS), min_size=1, max_size=5),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_what_is_solved_is_what_the_sizes_were_made_of(texts, n, m):
    pairs = []
    for text in texts:
        expr = parse(text)
        size = expr.subs({s: {"N": n, "M": m}[str(s)] for s in expr.free_symbols})
        if size.is_Integer and size >= 0:
            pairs.append((str(expr), int(size)))
    found = solve(known(*pairs))

    assert found == {name: {"N": n, "M": m}[name] for name in found}
