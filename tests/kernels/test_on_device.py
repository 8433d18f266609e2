"""What kernels declare about devices, held to what they do with an array library."""

from __future__ import annotations

from collections import Counter
from functools import wraps
from importlib import import_module

import cases
import numpy as np
import pytest
from checkers import build, differentiated, evaluate
from graphs import floats, parse

import gradtool as gt
from gradtool.graph.families import FAMILIES
from gradtool.ops.kernels import Kernel, kernels

for family in FAMILIES:
    import_module(f"operators.{family}")
ALLOCATING = {k.name: k for k in kernels() if k.allocating}
TRIED = 2  # cases of each operator in each mode
STRAIGHT = """g (float[6] x, float s) => (float loss) {
    q = QuantizeLinear (x, s)
    y = DequantizeLinear (q, s)
    loss = ReduceSum <keepdims = 0> (y)
}"""


class OnDevice(np.ndarray):
    """An array that only `get` brings to the host, as CuPy's."""

    def get(self) -> np.ndarray:
        return self.view(np.ndarray)


class Library:
    """An array library that isn't numpy, and what was asked of it."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getattr__(self, name: str):
        self.asked.add(name)
        return getattr(np, name)


def placed(value):
    """Arrays of the library; what is none stays."""
    if isinstance(value, list):
        return [placed(item) for item in value]
    return value.view(OnDevice) if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module")
def uses() -> dict[str, bool]:
    """Whether each kernel that allocates its result uses the library, in any of its cases."""
    found: dict[str, bool] = {}
    functions = {kernel: kernel.function for kernel in kernels() if kernel.allocating}
    for kernel in functions:
        object.__setattr__(kernel, "function", watched(kernel, found))
    try:
        run_cases()
    finally:
        for kernel, function in functions.items():
            object.__setattr__(kernel, "function", function)
    return found


def watched(kernel: Kernel, found: dict[str, bool]):
    function = kernel.function

    @wraps(function)
    def run(xp, *inputs, **attributes):
        library = Library()
        given = [v if i in kernel.host else placed(v) for i, v in enumerate(inputs)]
        try:
            function(library, *given, **attributes)
        except (AttributeError, ImportError, TypeError):  # what CuPy has and numpy hasn't
            assert library.asked
        found[kernel.name] = found.get(kernel.name, False) or bool(library.asked)
        return function(xp, *inputs, **attributes)

    return run


def run_cases() -> None:
    """Some of every operator, of rules for what only gradients emit, and all with sequences."""
    tried: Counter[tuple[str, ...]] = Counter()
    for case in cases.CASES:
        kind = (case.op, *(v for v in case.attributes.values() if isinstance(v, str)))
        tried[kind] += 1
        with np.errstate(all="ignore"):
            if case.op in ALLOCATING and tried[kind] <= TRIED:
                evaluate(*build(case, np.float32))
            if case.gradient and tried[kind] <= TRIED:
                evaluate(*differentiated(case, np.float32)[:2])
    training = gt.grad(parse(STRAIGHT, "s"), loss="loss", ste=True, wrt=["s"])
    gt.run(training, {"x": floats(6), "s": np.float32(0.5)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gradtool.passes.lower_sequences.lower_sequences", lambda _: 0)
        for case in cases.WHOLE:
            if any(op in ALLOCATING for op in case.ops):
                training = gt.grad(parse(case.text, case.weights), loss="sum", wrt=case.wrt.split())
                gt.run(training, case.feeds)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", sorted(ALLOCATING))
def test_a_kernel_that_allocates_its_result_declares_whether_it_uses_the_library(name, uses):
    assert uses[name] == ALLOCATING[name].on_device


def test_every_kernel_that_writes_where_it_is_told_is_on_the_device():
    assert all(kernel.on_device for kernel in kernels() if not kernel.allocating)
