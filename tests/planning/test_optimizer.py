"""Optimizer state: so many tensors of each trained parameter."""

import dataclasses

import pytest
from graphs import parse
from programs import program

import gradtool as gt
from gradtool.graph.optimizers import OPTIMIZERS
from gradtool.workloads.budgets.limits import state_bytes

BEFORE = program("h = MatMul x w", "y = Add h x", outputs="y", parameters="w")
NUMBERS = {value.name: number for number, value in enumerate(BEFORE.values)}


def trained(*names):
    return dataclasses.replace(BEFORE, gradients=dict.fromkeys(names, NUMBERS["y"]))


@pytest.mark.parametrize(
    ("optimizer", "tensors"),
    [("none", 0), ("sgd", 0), ("momentum", 1), ("adam", 2), ("adamw", 2), ("adagrad", 1)],
)
def test_state_is_so_many_times_the_parameter(optimizer, tensors):
    size = BEFORE.aligned(BEFORE.values[NUMBERS["w"]].bytes)

    assert size > 0
    assert state_bytes(trained("w"), optimizer) == tensors * size


def test_an_input_beside_a_parameter_is_not_trained():
    assert state_bytes(trained("w", "x"), "adam") == state_bytes(trained("w"), "adam")


def test_weights_that_are_inputs_are_trained():
    assert state_bytes(trained("x"), "adam") > 0


def test_a_frozen_parameter_has_no_state():
    assert state_bytes(trained(), "adam") == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS[1:])
def test_what_is_counted_is_what_a_step_holds(optimizer):
    """Of matrices, a table, vectors and a kernel; a count of steps aside."""
    model = parse(
        """g (int64[4] i, float[9, 6] t, float[6, 8] w, float[8] b, float[3, 1, 3] k) => (y) {
            e = Gather (t, i) m = MatMul (e, w) a = Add (m, b) axes = Constant <value_ints = [1]> ()
            u = Unsqueeze (a, axes) y = Conv (u, k)
        }""",
        "t w b k",
    )
    whole = gt.plan(gt.grad(model, loss="sum:y", optimizer=optimizer))
    held = [b.bytes for b in whole.buffers if b.region == "state"]
    counts = [b for b in whole.buffers if b.value is not None
              and whole.program.values[b.value].name == "step"]  # fmt: skip
    gradients = gt.plan(gt.grad(model, loss="sum:y")).program

    assert sum(held) - sum(b.bytes for b in counts) == state_bytes(gradients, optimizer)
