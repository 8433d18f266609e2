"""Chains and mountains: values that are read again on the way back, as gradients do."""

from __future__ import annotations

from hypothesis import strategies as st
from programs import program

from gradtool.planning.search.cost_model import CostModel


def chain(length):
    """The gradient of a chain of steps of one size, each read on the way back."""
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(length)]
    backward = [f"g{i} = Mul {f'g{i + 1}' if i + 1 < length else f'a{i}'} a{i}"
                for i in reversed(range(length))]  # fmt: skip
    return program(*forward, *backward, outputs="g0"), [1] * 2 * length


@st.composite
def mountains(draw, least=3, most=12):
    """Values of several sizes and costs, each read again on the way back, some of them twice."""
    count = draw(st.integers(least, most))
    names = [f"a{i}" for i in range(count)] + [f"g{i}" for i in range(count)]
    forward = [f"a{i} = Tanh {f'a{i - 1}' if i else 'x'}" for i in range(count)]
    backward = []
    for i in reversed(range(count)):
        above = f"g{i + 1}" if i + 1 < count else f"a{i}"
        backward.append(f"g{i} = Mul {above} a{max(i - draw(st.integers(0, 1)), 0)}")
    sizes = {name: 16 * draw(st.integers(1, 6)) for name in names}
    made = program(*forward, *backward, outputs="g0", sizes=sizes)
    return made, [draw(st.integers(0, 5)) for _ in made.steps]


def model(drawn):
    """What it costs to run the steps of a drawn program again."""
    made, costs = drawn
    return CostModel(made, costs)
