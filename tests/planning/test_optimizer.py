"""Optimizer state: so many tensors of each trained parameter."""

import dataclasses

import pytest
from programs import program

from gradtool.planning.optimizer import state_bytes

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
