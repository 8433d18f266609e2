"""The largest batch: it fits, and one more does not; nor much more for what is searched for."""

from functools import cache
from math import ceil
from types import SimpleNamespace

import onnx_ir as ir
import pytest
from deep import deep

import gradtool as gt
from gradtool import shapes
from gradtool.errors import ModelError
from gradtool.workloads.budgets import batches
from gradtool.workloads.budgets.batches import largest_batches
from gradtool.workloads.budgets.limits import state_bytes
from gradtool.workloads.names import LIGHT
from gradtool.workloads.plans import workload
from gradtool.workloads.strategies import STRATEGIES, light

MEMORY = 64 * 1024
CHOSEN = {
    **{name: STRATEGIES[name] for name in ("keep", "mirror", "sqrt", "min-cut")},
    LIGHT: light,
    "optimal": STRATEGIES["optimal"],
}


@pytest.fixture(scope="module")
def grown():
    model = ir.from_proto(deep())
    shapes.infer(model)
    training = gt.grad(model, loss="loss").model
    return cache(lambda size: workload(training, {"batch": size}))


@pytest.fixture(scope="module")
def found(grown):
    return largest_batches(grown, CHOSEN, MEMORY)


def plan_fits(work, name, memory):
    """Whether the arena of a plan fits into so many bytes."""
    if name in batches._SEARCHED:
        return batches._searched(work, name).peak <= memory
    return CHOSEN[name](work).peak <= memory


@pytest.mark.exhaustive
def test_the_largest_batch_fits_and_more_does_not(grown, found):
    for name, batch in found.items():
        more = 1 if name in ("keep", "mirror", "sqrt") else ceil(batch / 50)
        assert plan_fits(grown(batch), name, MEMORY)
        assert not plan_fits(grown(batch + more), name, MEMORY)


@pytest.mark.exhaustive
def test_more_memory_never_gives_a_smaller_batch(grown):
    """Through several powers of two, where what is searched is another batch."""
    before = dict.fromkeys(CHOSEN, 0)

    for memory in range(4 * 1024, 160 * 1024, 7000):
        found = largest_batches(grown, CHOSEN, memory)
        assert all(found[name] >= before[name] for name in CHOSEN), memory
        before = found
    assert min(before.values()) > 8


@pytest.mark.exhaustive
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


def test_what_is_searched_for_reaches_at_least_what_recipes_do(found):
    assert found["optimal"] == max(found.values())
    assert found["min-cut"] >= max(found["mirror"], found["sqrt"])


def test_a_recipe_counts_where_the_search_alone_finds_nothing(grown):
    work = grown(8)
    sqrt = STRATEGIES["sqrt"](work)
    assert sqrt.plan.peak < work.kept.peak
    assert plan_fits(work, "min-cut", sqrt.plan.peak)


def test_a_batch_that_the_model_refuses_is_named():
    def grown(size):
        raise ModelError(f"MatMul: {size} and 1")

    with pytest.raises(ModelError, match="cannot run with a batch of 1: MatMul: 1 and 1"):
        largest_batches(grown, CHOSEN, MEMORY)


def test_there_is_no_end_at_a_million(monkeypatch):
    monkeypatch.setattr(batches, "_room", lambda *_: 3_000_000)
    some = SimpleNamespace
    found = largest_batches(
        lambda size: some(size=size, program=some(steps=()), listener=some()),
        {"keep": lambda work: some(peak=work.size, plan=some(buffers=()), form=None)},
        0,
    )

    assert found == {"keep": 3_000_000}


def test_where_nothing_fits_the_batch_is_none(grown):
    done = []

    assert largest_batches(grown, CHOSEN, 100, done=lambda: done.append(1)) == dict.fromkeys(
        CHOSEN, 0
    )
    assert len(done) == len(CHOSEN)


@pytest.mark.exhaustive
def test_a_search_says_how_far_it_is(grown):
    heard = []
    work = grown(2)
    largest_batches(
        lambda size: work if size == 2 else workload(work.model, {"batch": size}),
        {"optimal": STRATEGIES["optimal"]},
        MEMORY,
        point=lambda done, whole: heard.append(done / whole),
    )

    assert heard.count(1.0) > 1
    assert len({share for share in heard if share < 1}) > 5
