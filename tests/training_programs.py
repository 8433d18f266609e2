"""Programs with a backward part: random ones, and a chain of layers written by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import strategies as st
from programs import program
from random_programs import programs

from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.graph.specs import Spec
from gradtool.planning.no_recompute import no_recompute


def backward_from(before, first):
    """The same program, its steps from number `first` on being backward."""
    steps = [
        dataclasses.replace(s, stage="backward" if i >= first else "forward")
        for i, s in enumerate(before.steps)
    ]
    return dataclasses.replace(before, steps=tuple(steps))


@st.composite
def training_programs(draw, most=12, *, runnable=False):
    """A random program whose last steps are backward; some forward steps run once only.

    In one that is runnable all values have the same size.
    """
    before = draw(programs(most=most))
    if runnable:
        values = [dataclasses.replace(v, spec=Spec((16,), v.spec.dtype)) for v in before.values]
        before = dataclasses.replace(before, values=tuple(values))
    made = backward_from(before, draw(st.integers(1, len(before.steps))))
    once = draw(st.sets(st.integers(0, len(made.steps) - 1), max_size=2))
    steps = [dataclasses.replace(s, recomputable=i not in once, flops=draw(st.integers(0, 9)))
             for i, s in enumerate(made.steps)]  # fmt: skip
    return dataclasses.replace(made, steps=tuple(steps))


def chain(layers, ops=("MatMul", "Sin"), sizes=None):
    """`layers` layers of the given operators and the gradient of each, which reads its input.

    Values are called `h1`, `h2` and so on in the order of forward, steps after what they compute.
    """
    names, steps = ["x"], []
    for index in range(layers * len(ops)):
        op = ops[index % len(ops)]
        second = " w" if op == "MatMul" else ""
        names.append(f"h{index + 1}")
        steps.append(f"{names[-1]} = {op} {names[-2]}{second}")
    forward, grad = len(steps), names[-1]
    for index in reversed(range(forward)):
        steps.append(f"g{index} = Mul {grad} {names[index]}")
        grad = f"g{index}"
    made = program(*steps, outputs=grad, parameters="w", sizes=sizes, in_place=True)
    return backward_from(made, forward)


def run(made):
    """The bytes of the outputs of a runnable program."""
    executor = Executor(
        no_recompute(made), open_device("cpu"), lambda _: np.full(16, 2, np.float32)
    )
    executor.set_input("x", np.linspace(-1, 1, 16, dtype=np.float32))
    executor.step()
    return {name: array.tobytes() for name, array in executor.outputs().items()}
