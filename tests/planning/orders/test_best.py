from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from instances import program_of
from programs import program
from random_programs import programs

from gradtool.planning.orders.best import best_order
from gradtool.planning.orders.bounds import least_during, order_bound, working_set
from gradtool.planning.orders.graph import StepGraph, mask
from gradtool.planning.orders.moves import Moves, depth_first, greedy
from gradtool.planning.orders.precedence_closure import Implied
from gradtool.planning.orders.search import Search, from_start, outwards
from gradtool.planning.simulate import Simulator

EXAMPLES = {"deadline": None, "derandomize": True, "database": None}


def every_order(graph, order=()):
    """All orders of the steps."""
    if len(order) == graph.count:
        yield order
    for step in range(graph.count):
        if step not in order and set(graph.before[step]) <= set(order):
            yield from every_order(graph, (*order, step))


@st.composite
def instances(draw, most=8):
    """A small instance with skewed sizes, so that orders differ."""
    count = draw(st.integers(4, most))
    size = st.sampled_from([1, 2, 3, 5, 8, 13, 21])
    nodes = [{"bytes": draw(size), "cost": 1} for _ in range(count)]
    edges = {(draw(st.integers(0, v - 1)), v) for v in range(1, count) for _ in "12"}
    return program_of(nodes, sorted(edges))


small = st.one_of(programs(most=6), instances())


@settings(max_examples=trials(100), **EXAMPLES)
@given(small)
def test_no_bound_is_above_the_best_order_and_proof_is_true(before):
    graph = StepGraph(before)
    weigh = Simulator(before).peak
    least = min(weigh(order) for order in every_order(graph))
    bound = order_bound(graph, [np.arange(graph.count)], cuts=100)
    found = best_order(before)

    assert working_set(graph) <= bound.bytes <= found.bound <= least <= found.peak
    assert bound.complete
    assert found.peak == weigh(found.order)
    assert found.peak <= weigh(range(graph.count))
    assert found.peak == least


@settings(max_examples=trials(100), **EXAMPLES)
@given(small)
def test_a_search_finds_an_order_within_a_limit_exactly_if_there_is_one(before):
    graph = StepGraph(before)
    least = min(graph.peak(order) for order in every_order(graph))
    forward = Moves(graph, backward=False)
    fits, none = from_start(forward, least, 10_000), from_start(forward, least - 1, 10_000)

    assert graph.peak(fits.path) == least
    assert none.path is None
    assert none.exhausted


@settings(max_examples=trials(100), **EXAMPLES)
@given(small, st.integers(0, 3))
def test_implied_precedence_holds_in_every_order_within_the_limit(before, slack):
    graph = StepGraph(before)
    orders = list(every_order(graph))
    limit = min(map(graph.peak, orders)) + slack
    implied = Implied(graph, limit, 10_000)
    implied.ask(range(graph.count))
    pairs = set(zip(*map(np.ndarray.tolist, implied.graph.edges), strict=True))

    assert not implied.refuted
    for order in orders:
        if graph.peak(order) <= limit:
            assert all(order.index(a) < order.index(b) for a, b in pairs)


@settings(max_examples=trials(100), **EXAMPLES)
@given(small)
def test_what_a_step_needs_is_the_least_that_any_order_holds_while_it_runs(before):
    graph = StepGraph(before)
    held = [
        dict(zip(order, graph.profile(order).tolist(), strict=True)) for order in every_order(graph)
    ]

    for step in range(graph.count):
        assert least_during(graph, step)[0] == min(h[step] for h in held)


@settings(max_examples=trials(100), **EXAMPLES)
@given(programs(), st.randoms(use_true_random=False))
def test_the_graph_weighs_orders_like_the_simulator(before, random):
    graph = StepGraph(before)
    order, ready = [], [s for s in range(graph.count) if not graph.before[s]]
    while ready:
        order.append(ready.pop(random.randrange(len(ready))))
        ready += [s for s in graph.after[order[-1]] if set(graph.before[s]) <= set(order)]

    assert graph.profile(order).tolist() == Simulator(before).profile(order)


@settings(max_examples=trials(100), **EXAMPLES)
@given(programs(), st.booleans(), st.integers(0, 20))
def test_of_a_valley_only_what_a_move_touches_is_weighed_again(before, backward, slack):
    graph = StepGraph(before)
    moves = Moves(graph, backward=backward)
    search = Search(moves, int(graph.profile(range(graph.count)).max()) - slack, 100)
    state, goal = moves.ends()
    state = search._settled(state)
    while state.run != goal:
        step = min(state.ready, key=lambda v: moves.weigh(state.run, state.live, v))
        bare = moves.make(state, step, moves.weigh(state.run, state.live, step)[1])
        touched = state.tight.union(moves.beside(step), moves.freed[step])
        state = search._settled(bare, touched)

        assert state == search._settled(bare)


@settings(max_examples=trials(100), **EXAMPLES)
@given(programs(), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3))
def test_what_a_step_reaches_is_its_closure(before, pairs):
    """Also where more precedence makes the steps wait for each other in a ring."""
    graph = StepGraph(before)
    graph = graph.ordered([(a % graph.count, b % graph.count) for a, b in pairs])
    for step in range(graph.count):
        for backward in (False, True):
            reached = np.flatnonzero(graph.reach(step, backward=backward)).tolist()

            assert reached == sorted(graph.closure([step], backward=backward))


@settings(max_examples=trials(100), **EXAMPLES)
@given(programs())
def test_moves_weigh_what_the_profile_of_their_order_says(before):
    graph = StepGraph(before)
    forward, backward = Moves(graph, backward=False), Moves(graph, backward=True)
    run, live, peaks = 0, graph.fixed, []
    for step in range(graph.count):
        during, after = forward.weigh(run, live, step)
        assert backward.weigh(run | 1 << step, after, step) == (during, live)
        run, live = run | 1 << step, after
        assert live == graph.live(mask(run, graph.count))
        peaks.append(during)

    assert peaks == graph.profile(range(graph.count)).tolist()


@settings(max_examples=trials(50), **EXAMPLES)
@given(small, st.booleans(), st.booleans())
def test_list_orders_run_every_step_after_what_it_needs(before, backward, newest):
    graph = StepGraph(before)

    for order in (greedy(Moves(graph, backward=backward), newest=newest), depth_first(graph)):
        assert sorted(order) == list(range(graph.count))
        assert all(order.index(a) < order.index(b) for a, b in zip(*graph.edges, strict=True))


BRANCHES = ("a = Exp x", "b = Exp x", "as = Tanh a", "bs = Tanh b", "y = Add as bs")
WIDE = {"a": 64, "b": 64, "x": 16, "y": 16}


def test_two_branches_run_one_after_the_other():
    """Bytes: x 64, a and b 256, as, bs and y 64.  One wide value at a time is enough.

    step          live
    a = Exp x     x a         320
    as = Tanh a   x a as      384
    b = Exp x     x as b      384
    bs = Tanh b   x as b bs   448
    y = Add       x as bs y   256
    """
    before = program(*BRANCHES, outputs="y", sizes=WIDE)
    found = best_order(before)

    assert Simulator(before).peak(range(5)) == 640
    assert (found.peak, found.bound, found.proven) == (448, 448, True)
    assert found.order in {(0, 2, 1, 3, 4), (1, 3, 0, 2, 4)}


def test_the_given_order_is_kept_when_it_meets_the_bound():
    found = best_order(program("a = Exp x", "b = Exp x", "y = Add a b", outputs="y"))

    assert (found.order, found.how, found.proven) == ((0, 1, 2), "given", True)


def test_steps_that_draw_at_random_keep_their_order():
    """Both wide values must be drawn first: then they are alive together."""
    before = program(*BRANCHES, outputs="y", sizes=WIDE)
    drawn = dataclasses.replace(
        before,
        steps=tuple(
            dataclasses.replace(s, recomputable=s.name not in {"a", "b", "as"})
            for s in before.steps
        ),
    )
    names = [drawn.steps[s].name for s in best_order(drawn).order]

    assert [n for n in names if n in {"a", "b", "as"}] == ["a", "b", "as"]
    assert (best_order(before).peak, best_order(drawn).peak) == (448, 640)


def test_a_search_from_a_state_passes_through_it():
    graph = StepGraph(program(*BRANCHES, outputs="y", sizes=WIDE))
    ways = Moves(graph, backward=True), Moves(graph, backward=False)
    run = np.array([False, True, False, True, False])

    assert outwards(*ways, run, 448, 100).path == (1, 3, 0, 2, 4)
    assert outwards(*ways, run, 447, 100).path is None


def test_without_work_the_bound_is_still_right():
    graph = StepGraph(program(*BRANCHES, outputs="y", sizes=WIDE))
    bound = order_bound(graph, [np.arange(5)], cuts=0)

    assert (bound.bytes, bound.complete) == (working_set(graph), False)
    assert not from_start(Moves(graph, backward=False), 447, 1).exhausted


def test_a_program_without_steps_holds_what_is_always_alive():
    found = best_order(program(outputs="x"))

    assert (found.order, found.peak, found.bound) == ((), 64, 64)


@pytest.mark.parametrize("count", [40])
def test_the_same_program_gives_the_same_order(count):
    random = np.random.default_rng(0)
    nodes = [{"bytes": int(b), "cost": 1} for b in random.integers(1, 99, count)]
    edges = [[int(random.integers(max(0, v - 12), v)), v] for v in range(1, count) for _ in "12"]
    before = program_of(nodes, edges)

    assert best_order(before) == best_order(before)


def test_a_state_of_many_moves_counts_as_several():
    """Once a is there, forty steps may move, and thirty-nine after each of these: three each."""
    text = ["a = Exp x", *(f"b{i} = Exp a" for i in range(40))]
    names = " ".join(f"b{i}" for i in range(40))
    moves = Moves(StepGraph(program(*text, outputs=names)), backward=False)
    search = Search(moves, 64 * 64, 100)

    assert search.run(*moves.ends()).path is None
    assert search.left == 100 - 3 - 40 * 3
