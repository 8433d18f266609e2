import ast
import time
from fractions import Fraction

import pytest
import sympy
from conftest import trials
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradtool.io.expressions import parse

NAMES = ("N", "H", "s77")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*N", "2*N"),
        ("N*2", "2*N"),
        ("floor(H/2 - 3/2) + 1", "floor(H/2 - 3/2) + 1"),
        ("((s77 - 1)//2) + 1", "floor(s77/2 - 1/2) + 1"),
        ("ceiling(H/2)", "-floor(-H/2)"),
        ("CeilToInt(IntTrueDiv(s77, 2))", "-floor(-s77/2)"),
        ("FloorDiv(N, 4) + 1", "floor(N/4) + 1"),
        ("Max(2, N + H)", "Max(2, H + N)"),
        ("N % 4", "Mod(N, 4)"),
        ("N**2 - 1", "N**2 - 1"),
    ],
)
def test_sizes_are_read_as_exporters_and_we_write_them(text, expected):
    assert str(parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9", "N**N", "N**99", "(N + H)**4", "2N", "1if N else 2", "N/0", "Mod(N, 0)", "7", "",
        "True*N", "0*N", "N < H", "floor(N, H)", "floor(x=N)", "__import__('os')", "N.bit_length()",
        "[N]", "N;H", "lambda", "N\n+\x00H", "(" * 150 + "N" + ")" * 150, "+".join("N" * 90),
        "99999999999999*N", "µ*2", "f(N)",
    ],
)  # fmt: skip
def test_anything_else_is_no_size(text):
    assert parse(text) is None


def _joined(inner):
    binary = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
    called = st.tuples(st.sampled_from(["Max", "Min", "Mod"]), inner, inner)
    return binary.map(lambda t: f"({t[0]} {t[1]} {t[2]})") | called.map(
        lambda t: f"{t[0]}({t[1]}, {t[2]})"
    )


written = st.recursive(st.sampled_from(NAMES) | st.integers(0, 99).map(str), _joined, max_leaves=8)


@settings(max_examples=trials(60), deadline=None)
@given(written | st.text(max_size=220))
def test_no_text_takes_long_or_raises(text):
    start = time.process_time()
    found = parse(text)

    assert time.process_time() - start < 5
    assert found is None or found.free_symbols


@settings(max_examples=trials(60), deadline=None)
@given(written, st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
@example("((N // N) / (N // H))", 1, 1, 1)
def test_what_is_read_has_the_value_that_python_gives_it(text, n, h, s77):
    found = parse(text)
    sizes = {"N": Fraction(n), "H": Fraction(h), "s77": Fraction(s77)}
    named = {"Max": max, "Min": min, "Mod": lambda a, b: a - b * (a // b), **sizes}
    if found is None:
        return
    try:
        expected = eval(compile(_fractions(text), "size", "eval"), {"F": Fraction}, named)  # noqa: S307
    except ZeroDivisionError:
        return

    assert found.subs({s: int(sizes[str(s)]) for s in found.free_symbols}) == sympy.Rational(
        expected.numerator, expected.denominator
    )


def _fractions(text):
    """The syntax tree of a text in which whole numbers are fractions, quotients of them too."""

    class Exact(ast.NodeTransformer):
        def visit_Constant(self, node):
            return ast.Call(ast.Name("F", ast.Load()), [node], [])

        def visit_BinOp(self, node):
            return ast.Call(ast.Name("F", ast.Load()), [self.generic_visit(node)], [])

    return ast.fix_missing_locations(Exact().visit(ast.parse(text, mode="eval")))
