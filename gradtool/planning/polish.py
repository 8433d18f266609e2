"""Annealing of whole schedules: steps move, run again and stop running again.

Source: Fast simulated annealing for rematerialisation (FastSA, NeurIPS 2023) anneals sequences of
steps and keeps the peak in a segment tree.  Unlike it we add up the bytes above the budget at every
step: unlike a peak, this sum tells nearly as good schedules apart, and a move changes it only where
storages come to life or die elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradtool.planning.polish_compiled import Annealer, available
from gradtool.planning.polish_memory import (
    BEST,
    BEST_EXTRA,
    BEST_LENGTH,
    BITS,
    LENGTH,
    ORDER,
    SLOTS,
    memory,
)
from gradtool.planning.schedule import Schedule, pruned
from gradtool.planning.simulate import Simulator
from gradtool.program import Program

MOVES = 20_000_000
INTERPRETED = 100
_PER_TEMPERATURE = 2_000


@dataclass(frozen=True)
class Polished:
    """A schedule: its peak in bytes, the cost of what runs again, and the moves tried to find it."""

    order: tuple[int, ...]
    peak: int
    extra: int
    moves: int


class Round(NamedTuple):
    """One cooling: a share of the moves, temperatures and weights of the excess from first to last.

    Temperatures are in mean costs of a step, weights in mean costs per mean bytes of a storage.
    """

    share: float
    hot: float
    cold: float
    light: float
    heavy: float


ROUNDS = (Round(1.0, 0.4, 0.01, 0.2, 4.0),)
SHIFTS = 50
DEPTH = 3


def polish(
    program: Program,
    start: Sequence[int],
    budget: int,
    *,
    costs: Sequence[int | None] | None = None,
    effort: float = 1.0,
    seed: int = 0,
    enough: int = 0,
    fast: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Polished:
    simulator = Simulator(program)
    priced = [s.flops for s in program.steps] if costs is None else list(costs)
    fast = available() if fast is None else fast
    m = memory(simulator, start, priced, budget, seed=seed)
    annealer = Annealer(m, fast=fast)
    cost = max(sum(c or 0 for c in priced) / max(len(priced), 1), 1)
    size = max(sum(simulator.bytes.values()) / max(len(simulator.bytes), 1), 1)
    moves = 0
    for r in ROUNDS:
        chunks = int(MOVES * effort * r.share / _PER_TEMPERATURE)
        if not fast: chunks = chunks // INTERPRETED
        for i in range(chunks):
            f = i / chunks
            annealer.anneal(cost * r.hot * (r.cold / r.hot) ** f, cost / size * r.light * (r.heavy / r.light) ** f, _PER_TEMPERATURE, shifts=SHIFTS, depth=DEPTH)
            moves += _PER_TEMPERATURE
            if annealer.m[BEST_EXTRA] <= enough or stop(): break
    m = annealer.m
    if m[BEST_EXTRA]>>60: return Polished((), 0, -1, moves)
    order = m[m[BEST]:m[BEST]+m[BEST_LENGTH]].tolist() if fast else m[m[BEST]:m[BEST]+m[BEST_LENGTH]]
    return Polished(tuple(order), simulator.peak(order), int(m[BEST_EXTRA]), moves)
