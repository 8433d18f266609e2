"""The largest batch: it fits, and one more does not."""

from functools import cache

import onnx_ir as ir
import pytest
from deep import deep

import gradtool as gt
from gradtool import shapes
from gradtool.budgets.batches import largest_batches, plan_fits
from gradtool.planning.optimizer import state_bytes
from gradtool.plans import workload
from gradtool.strategies import STRATEGIES

MEMORY = 64 * 1024
CHOSEN = {name: STRATEGIES[name] for name in ("keep", "sqrt", "min-cut", "optimal")}


@pytest.fixture(scope="module")
def grown():
    model = ir.from_proto(deep())
    shapes.infer(model)
    training = gt.grad(model, loss="loss").model
    return cache(lambda size: workload(training, {"batch": size}))


@pytest.fixture(scope="module")
def found(grown):
    return largest_batches(grown, CHOSEN, MEMORY)


def test_the_largest_batch_fits_and_one_more_does_not(grown, found):
    for name, batch in found.items():
        assert plan_fits(grown(batch), name, CHOSEN[name], MEMORY)
        assert not plan_fits(grown(batch + 1), name, CHOSEN[name], MEMORY)


def test_no_plan_fits_less_than_keeping_everything(found):
    assert 0 < found["keep"] <= min(found.values())
    assert found["optimal"] > found["keep"]


def test_optimizer_state_takes_its_part(grown, found):
    with_adam = largest_batches(grown, {"keep": STRATEGIES["keep"]}, MEMORY, optimizer="adam")
    state = state_bytes(grown(1).program, "adam")
    less = largest_batches(grown, {"keep": STRATEGIES["keep"]}, MEMORY - state)

    assert state > 0
    assert with_adam == less
    assert with_adam["keep"] < found["keep"]


def test_where_nothing_fits_the_batch_is_none(grown):
    done = []

    assert largest_batches(grown, CHOSEN, 100, done=lambda: done.append(1)) == dict.fromkeys(
        CHOSEN, 0
    )
    assert len(done) == len(CHOSEN)
