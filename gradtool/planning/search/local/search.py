"""Annealing of a schedule in a memory: which moves are tried and which are kept.

These functions are in the subset of Python that numba compiles, and answer the same when they are
interpreted: everything is integer, but for the weight of the excess and the temperature, which are
only multiplied, added and compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradtool.planning.search.local.held import (
    first_of,
    holder,
    latest,
    maker_of,
    next_after,
    reader_between,
)
from gradtool.planning.search.local.memory import (
    AT,
    BEST,
    BEST_EXTRA,
    BEST_LENGTH,
    BITS,
    BUDGET,
    CAPACITY,
    COST,
    COUNT,
    EARLIER,
    EXCESS,
    EXTRA,
    GAP,
    LAST,
    LAST_EXCESS,
    LAST_EXTRA,
    LATER,
    LENGTH,
    MAKER,
    MOST_UNDOS,
    MULTI,
    MULTIS,
    ORDER,
    OWN,
    PINNED,
    RANDOM,
    READERS,
    READS,
    REPEATS,
    SEAT,
    SIZE,
    SLOTS,
    UNDO,
    UNDOS,
    WRITES,
    Memory,
)
from gradtool.planning.search.local.moves import erase, insert, shift, take_back

WORD = 0xFFFFFFFF
SHIFTS = 50
DEPTH = 3


def draw(m: Memory, count: int) -> int:
    """A number below `count`: xorshift on 32 bits (Marsaglia 2003, doi:10.18637/jss.v008.i14)."""
    x = m[RANDOM]
    x ^= (x << 13) & WORD
    x ^= x >> 17
    x ^= (x << 5) & WORD
    m[RANDOM] = x
    return (x * count) >> 32


def near(m: Memory, room: int) -> int:
    """A number below `room`, small ones more often."""
    return draw(m, max(room >> draw(m, 8), 1))


def keep_best(m: Memory) -> None:
    """Keep the schedule if it fits and costs less than the best one so far."""
    if m[EXCESS] == 0 and m[EXTRA] < m[BEST_EXTRA]:
        m[BEST_EXTRA], m[BEST_LENGTH] = m[EXTRA], m[LENGTH] - 1
        for p in range(m[LENGTH] - 1):
            m[m[BEST] + p] = m[m[ORDER] + p] >> BITS


def low_end(m: Memory, instance: int) -> int:
    """The last position that an instance has to come behind."""
    step = instance >> BITS
    low = -1
    for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
        low = max(low, m[m[AT] + first_of(m, m[m[MAKER] + m[i]])])
    if m[m[EARLIER] + step] >= 0:
        low = max(low, m[m[AT] + first_of(m, m[m[EARLIER] + step])])
    before = latest(m, step, m[m[AT] + instance])
    if before >= 0:
        low = max(low, m[m[AT] + (step << BITS) + before])
    return low


def high_end(m: Memory, instance: int) -> int:
    """The first position that an instance has to come before."""
    step = instance >> BITS
    high = min(m[LENGTH] - 1, next_after(m, step, m[m[AT] + instance]))
    if m[m[LATER] + step] >= 0:
        high = min(high, m[m[AT] + first_of(m, m[m[LATER] + step])])
    if first_of(m, step) == instance:
        for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
            for j in range(m[m[READERS] + m[i]], m[m[READERS] + m[i] + 1]):
                high = min(high, m[m[AT] + first_of(m, m[j])])
    return high


def try_shift(m: Memory, instance: int) -> None:
    """Move an instance to where it may be."""
    p = m[m[AT] + instance]
    if draw(m, 2):
        room = p - low_end(m, instance) - 1
        if room > 0:
            shift(m, instance, p - 1 - near(m, room))
    else:
        room = high_end(m, instance) - p - 1
        if room > 0:
            shift(m, instance, p + 1 + near(m, room))


def added(m: Memory, weight: float) -> float:
    """What was added to extra + weight · excess since the last decision."""
    return (m[EXTRA] - m[LAST_EXTRA]) + weight * (m[EXCESS] - m[LAST_EXCESS])


def excess_with(m: Memory, first: int, last: int, size: int) -> int:
    """How much of the excess from `first` to `last` could go if `size` bytes were not there."""
    gap, own, budget = m[GAP], m[OWN], m[BUDGET]
    found = 0
    for p in range(first, last + 1):
        found += max(min(m[gap + p] + m[own + p] - budget, size), 0)
    return found


def try_insert(m: Memory, p: int, root: int, weight: float, most: float) -> bool:
    """Run a step again so that what position p reads of it need not be alive since its last use.

    It is not done where it would add more than `most` even if it took away what it can.
    """
    step = m[m[MAKER] + root]
    base = step << BITS
    if not m[m[REPEATS] + step] or m[m[PINNED] + root] or m[m[COUNT] + step] == SLOTS:
        return False
    use = reader_between(m, root, m[m[AT] + maker_of(m, holder(m, root, p))], p)
    if p - use <= 1 or m[UNDOS] + 2 > MOST_UNDOS or m[LENGTH] == m[CAPACITY]:
        return False
    to = p - near(m, p - use - 1)
    gone = excess_with(m, use + 1, to - 1, m[m[SIZE] + root])
    if m[m[COST] + step] + added(m, weight) - weight * gone > most:
        return False
    slot = 0
    while m[m[AT] + base + slot] >= 0:
        slot += 1
    insert(m, base + slot, to)
    return True


def insert_sources(m: Memory, weight: float, most: float) -> None:
    """Run again, perhaps, what was kept alive for a step that was just inserted, and so on."""
    begin = m[UNDOS] - 1
    for k in range(begin, begin + DEPTH):
        if k >= m[UNDOS]:
            return
        instance = m[m[UNDO] + 3 * k + 1]
        step = instance >> BITS
        for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
            p = m[m[AT] + instance]
            if m[m[LAST] + holder(m, m[i], p)] == instance and draw(m, 2):
                try_insert(m, p, m[i], weight, most)


def try_erase(m: Memory) -> None:
    """Run a step once less."""
    if m[MULTIS] == 0:
        return
    step = m[m[MULTI] + draw(m, m[MULTIS])]
    k = draw(m, m[m[COUNT] + step])
    slot = m[m[SEAT] + (step << BITS) + k]
    instance = (step << BITS) + slot
    if k == 0:
        for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
            if m[m[PINNED] + m[i]] or m[m[LAST] + (m[i] << BITS) + slot] != instance:
                return
    erase(m, instance)


def propose(m: Memory, weight: float, most: float) -> None:
    """Shift an instance, add one, take one out, or take one out and add another."""
    kind = draw(m, 100)
    if kind < SHIFTS:
        try_shift(m, m[m[ORDER] + draw(m, m[LENGTH] - 1)])
        return
    kind = (kind - SHIFTS) % 3
    if kind < 2:
        try_erase(m)
    if kind == 0 or (kind == 1 and m[UNDOS] == 0):
        return
    p = draw(m, m[LENGTH] - 1)
    step = m[m[ORDER] + p] >> BITS
    first, stop = m[m[READS] + step], m[m[READS] + step + 1]
    if first < stop and try_insert(m, p, m[first + draw(m, stop - first)], weight, most):
        insert_sources(m, weight, most)


def anneal(
    m: Memory,
    rolls: Sequence[float],
    temperature: float,
    weight: float,
    moves: int,
) -> None:
    """Try moves at one temperature.

    One is accepted if it adds less than temperature · -ln(u) to extra + weight · excess, for a
    random u; `rolls` are values of -ln(u).
    """
    for _ in range(moves):
        m[LAST_EXTRA], m[LAST_EXCESS] = m[EXTRA], m[EXCESS]
        most = temperature * rolls[draw(m, len(rolls))]
        propose(m, weight, most)
        if m[UNDOS] == 0:
            continue
        if added(m, weight) <= most:
            m[UNDOS] = 0
            keep_best(m)
        else:
            take_back(m)
