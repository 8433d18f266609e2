"""Moves on a schedule and the bytes above the budget, kept up to date; annealing by such moves.

These functions are in the subset of Python that numba compiles, and answer the same when they are
interpreted: everything is integer, but for the weight of the excess and the temperature, which are
only multiplied and compared.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import TypeAlias

from gradtool.planning.polish_memory import (
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
    END,
    EXCESS,
    EXTRA,
    GAP,
    HIGH,
    LAST,
    LAST_EXCESS,
    LAST_EXTRA,
    LATER,
    LENGTH,
    LOW,
    MAKER,
    MOST_UNDOS,
    MULTI,
    MULTIS,
    ORDER,
    OWN,
    PINNED,
    PLACE,
    RANDOM,
    READERS,
    READS,
    REPEATS,
    SEAT,
    SIZE,
    SLOTS,
    TAKES,
    TARGET,
    TOUCHED,
    TOUCHES,
    UNDO,
    UNDOS,
    WORK,
    WRITES,
)

Memory: TypeAlias = MutableSequence[int]

WORD = 0xFFFFFFFF
FAR = 1 << 40
SHIFTED, INSERTED, ERASED = 0, 1, 2


def draw(m: Memory, count: int) -> int:
    """A number below `count`: xorshift on 32 bits (Marsaglia 2003, doi:10.18637/jss.v008.i14)."""
    x = m[RANDOM]
    x ^= (x << 13) & WORD
    x ^= x >> 17
    x ^= (x << 5) & WORD
    m[RANDOM] = x
    return (x * count) >> 32


def add(m: Memory, first: int, stop: int, size: int) -> None:
    """Count `size` more bytes in the gaps from `first` up to and without `stop`."""
    gap, own, budget = m[GAP], m[OWN], m[BUDGET]
    more = 0
    for p in range(first, stop):
        over = m[gap + p] + m[own + p] - budget
        m[gap + p] += size
        more += max(over + size, 0) - max(over, 0)
    m[EXCESS] += more


def excess(m: Memory, p: int) -> int:
    """Bytes above the budget at a position."""
    return max(m[m[GAP] + p] + m[m[OWN] + p] - m[BUDGET], 0)


def first_of(m: Memory, step: int) -> int:
    """The first instance of a step."""
    return (step << BITS) + m[m[SEAT] + (step << BITS)]


def latest(m: Memory, step: int, p: int) -> int:
    """The slot of the last instance of a step before position p; -1 if there is none."""
    base = step << BITS
    for k in range(m[m[COUNT] + step] - 1, -1, -1):
        slot = m[m[SEAT] + base + k]
        if m[m[AT] + base + slot] < p:
            return slot
    return -1


def next_after(m: Memory, step: int, p: int) -> int:
    """The position of the first instance of a step behind position p."""
    base = step << BITS
    found = FAR
    for k in range(m[m[COUNT] + step] - 1, -1, -1):
        q = m[m[AT] + base + m[m[SEAT] + base + k]]
        if q <= p:
            break
        found = q
    return found


def holder(m: Memory, root: int, p: int) -> int:
    """The instance of a storage that is read at position p."""
    step = m[m[MAKER] + root]
    if m[m[PINNED] + root]:
        return (root << BITS) + m[m[SEAT] + (step << BITS)]
    return (root << BITS) + latest(m, step, p)


def maker_of(m: Memory, held: int) -> int:
    """The instance of a step that made an instance of a storage."""
    return (m[m[MAKER] + (held >> BITS)] << BITS) + (held & (SLOTS - 1))


def reader_between(m: Memory, root: int, first: int, stop: int) -> int:
    """The last position between two others at which a storage is read; `first` if there is none."""
    at, seat, count = m[AT], m[SEAT], m[COUNT]
    most = first
    for i in range(m[m[READERS] + root], m[m[READERS] + root + 1]):
        base = m[i] << BITS
        for k in range(m[count + m[i]]):
            p = m[at + base + m[seat + base + k]]
            if most < p < stop:
                most = p
    return most


def last_reader(m: Memory, held: int) -> int:
    """The instance that reads an instance of a storage last: its maker if nobody does."""
    root = held >> BITS
    if m[m[PINNED] + root]:
        return m[END]
    maker = maker_of(m, held)
    p = m[m[AT] + maker]
    return m[m[ORDER] + reader_between(m, root, p, next_after(m, maker >> BITS, p))]


def counts(m: Memory, root: int, instance: int) -> bool:
    """Whether an instance has to find room for a storage that its step writes."""
    if m[m[PINNED] + root]:
        return instance == first_of(m, instance >> BITS)
    is_read = m[m[READERS] + root] < m[m[READERS] + root + 1]
    return not is_read or m[m[LAST] + (root << BITS) + (instance & (SLOTS - 1))] != instance


def refresh(m: Memory, instance: int) -> None:
    """Weigh what a step needs on top of what is alive before it."""
    p = m[m[AT] + instance]
    if p < 0:
        return
    step = instance >> BITS
    total = m[m[WORK] + step]
    for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
        if counts(m, m[i], instance):
            total += m[m[SIZE] + m[i]]
    target = m[m[TARGET] + step]
    if target >= 0 and counts(m, target, instance):
        for i in range(m[m[TAKES] + step], m[m[TAKES] + step + 1]):
            if m[m[LAST] + holder(m, m[i], p)] == instance:
                total -= m[m[SIZE] + target]
                break
    m[EXCESS] -= excess(m, p)
    m[m[OWN] + p] = total
    m[EXCESS] += excess(m, p)


def count_bytes(m: Memory, held: int, size: int) -> None:
    """Count more bytes while an instance of a storage is alive, between positions LOW and HIGH."""
    first = m[m[AT] + maker_of(m, held)] + 1
    last = m[m[AT] + m[m[LAST] + held]]
    add(m, max(first, m[LOW]), min(last, m[HIGH]) + 1, size)


def set_last(m: Memory, held: int, new: int) -> None:
    """Say who reads an instance of a storage last; weigh anew the steps that this concerns."""
    old, maker = m[m[LAST] + held], maker_of(m, held)
    if new != old:
        m[m[LAST] + held] = new
        if m[m[TARGET] + (old >> BITS)] >= 0:
            refresh(m, old)
        if m[m[TARGET] + (new >> BITS)] >= 0:
            refresh(m, new)
        if maker in (old, new):
            refresh(m, maker)


def update_last(m: Memory, held: int) -> None:
    """Find who reads an instance of a storage last, and count its bytes up to there."""
    old, new = m[m[AT] + m[m[LAST] + held]], last_reader(m, held)
    until = m[m[AT] + new]
    size = m[m[SIZE] + (held >> BITS)]
    add(m, old + 1, until + 1, size)
    add(m, until + 1, old + 1, -size)
    set_last(m, held, new)


def detach(m: Memory, held: int) -> None:
    """Count an instance of a storage no more, until `attach`."""
    count_bytes(m, held, -m[m[SIZE] + (held >> BITS)])
    m[m[TOUCHED] + m[TOUCHES]] = held
    m[TOUCHES] += 1


def attach(m: Memory) -> None:
    """Count all that was detached, up to where it is now read last."""
    for i in range(m[TOUCHES]):
        held = m[m[TOUCHED] + i]
        set_last(m, held, last_reader(m, held))
        count_bytes(m, held, m[m[SIZE] + (held >> BITS)])
    m[TOUCHES] = 0


def remember(m: Memory, kind: int, instance: int, p: int) -> None:
    """Note a move so that it can be taken back."""
    at = m[UNDO] + 3 * m[UNDOS]
    m[at], m[at + 1], m[at + 2] = kind, instance, p
    m[UNDOS] += 1


def move_up(m: Memory, first: int, last: int) -> None:
    """Let what runs from `first` to `last` run one position later."""
    gap, own, order, at = m[GAP], m[OWN], m[ORDER], m[AT]
    for p in range(last, first - 1, -1):
        m[gap + p + 1] = m[gap + p]
    for p in range(last, first - 1, -1):
        m[own + p + 1] = m[own + p]
    for p in range(last, first - 1, -1):
        m[order + p + 1] = m[order + p]
        m[at + m[order + p]] = p + 1


def move_down(m: Memory, first: int, last: int) -> None:
    """Let what runs from `first` to `last` run one position earlier."""
    gap, own, order, at = m[GAP], m[OWN], m[ORDER], m[AT]
    for p in range(first, last + 1):
        m[gap + p - 1] = m[gap + p]
    for p in range(first, last + 1):
        m[own + p - 1] = m[own + p]
    for p in range(first, last + 1):
        m[order + p - 1] = m[order + p]
        m[at + m[order + p]] = p - 1


def shift(m: Memory, instance: int, to: int) -> None:
    """Let an instance run at position `to` instead; those between make room.

    Other instances of its step must not lie between, nor what has to come before or after it.
    """
    step = instance >> BITS
    old = m[m[AT] + instance]
    mine = m[m[OWN] + old]
    detach_around(m, instance, to)
    m[EXCESS] -= excess(m, old)
    if to > old:
        move_down(m, old + 1, to)
        m[m[GAP] + to] = m[m[GAP] + to + 1]
    else:
        move_up(m, to, old - 1)
    m[m[OWN] + to], m[m[ORDER] + to], m[m[AT] + instance] = mine, instance, to
    m[EXCESS] += excess(m, to)
    attach(m)
    remember(m, SHIFTED, instance, old)


def detach_around(m: Memory, instance: int, to: int) -> None:
    """Detach the storages that are alive otherwise once an instance runs at another position.

    As long as everything is read from the same instances, nothing changes but between the two.
    """
    step, slot = instance >> BITS, instance & (SLOTS - 1)
    old = m[m[AT] + instance]
    limit = to if to < old else to + 1
    before = latest(m, step, old)
    m[LOW], m[HIGH] = min(to, old), max(to, old) + 1
    if before >= 0:
        m[LOW], m[HIGH] = 0, FAR
    for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
        if holder(m, m[i], old) != holder(m, m[i], limit):
            m[LOW], m[HIGH] = 0, FAR
    for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
        here, there = holder(m, m[i], old), holder(m, m[i], limit)
        last = m[m[LAST] + here]
        if here != there:
            detach(m, there)
        if here != there or last == instance or m[m[AT] + last] < limit:
            detach(m, here)
    for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
        if before < 0 or not m[m[PINNED] + m[i]]:
            detach(m, (m[i] << BITS) + slot)
        if before >= 0 and not m[m[PINNED] + m[i]]:
            detach(m, (m[i] << BITS) + before)


def insert(m: Memory, instance: int, to: int) -> None:
    """Let a further instance of a step run at position `to`; what it reads must be there."""
    step, slot = instance >> BITS, instance & (SLOTS - 1)
    before = latest(m, step, to)
    move_up(m, to, m[LENGTH] - 1)
    m[m[ORDER] + to], m[m[OWN] + to], m[m[AT] + instance] = instance, 0, to
    m[LENGTH] += 1
    m[EXTRA] += m[m[COST] + step]
    m[EXCESS] += excess(m, to)
    seat(m, step, slot)
    for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
        if not m[m[PINNED] + m[i]]:
            m[m[LAST] + (m[i] << BITS) + slot] = instance
            update_last(m, (m[i] << BITS) + slot)
    refresh(m, instance)
    update_around(m, instance, before)
    remember(m, INSERTED, instance, to)


def update_around(m: Memory, instance: int, before: int) -> None:
    """Update who reads last what an instance reads, and what the one before it wrote."""
    step, p = instance >> BITS, m[m[AT] + instance]
    for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
        if before >= 0 and not m[m[PINNED] + m[i]]:
            update_last(m, (m[i] << BITS) + before)
    for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
        held = holder(m, m[i], p)
        last = m[m[LAST] + held]
        if last == instance or m[m[AT] + last] < p:
            update_last(m, held)


def erase(m: Memory, instance: int) -> None:
    """Take an instance out: the one before it must be there, or nobody reads it."""
    step, slot = instance >> BITS, instance & (SLOTS - 1)
    old = m[m[AT] + instance]
    before = latest(m, step, old)
    for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
        if not m[m[PINNED] + m[i]]:
            last = m[m[LAST] + (m[i] << BITS) + slot]
            add(m, old + 1, m[m[AT] + last] + 1, -m[m[SIZE] + m[i]])
    unseat(m, step, slot)
    update_around(m, instance, before)
    m[EXTRA] -= m[m[COST] + step]
    m[EXCESS] -= excess(m, old)
    move_down(m, old + 1, m[LENGTH] - 1)
    m[LENGTH] -= 1
    m[m[AT] + instance] = -1
    remember(m, ERASED, instance, old)


def seat(m: Memory, step: int, slot: int) -> None:
    """Enter a slot among those of the instances of a step, and the step if it runs repeatedly."""
    base = step << BITS
    seats, at = m[SEAT] + base, m[AT] + base
    k = m[m[COUNT] + step]
    while k > 0 and m[at + m[seats + k - 1]] > m[at + slot]:
        m[seats + k] = m[seats + k - 1]
        k -= 1
    m[seats + k] = slot
    m[m[COUNT] + step] += 1
    if m[m[COUNT] + step] == 2:
        m[m[PLACE] + step] = m[MULTIS]
        m[m[MULTI] + m[MULTIS]] = step
        m[MULTIS] += 1


def unseat(m: Memory, step: int, slot: int) -> None:
    """The opposite of `seat`."""
    seats = m[SEAT] + (step << BITS)
    k = 0
    while m[seats + k] != slot:
        k += 1
    m[m[COUNT] + step] -= 1
    for i in range(k, m[m[COUNT] + step]):
        m[seats + i] = m[seats + i + 1]
    if m[m[COUNT] + step] == 1:
        m[MULTIS] -= 1
        other = m[m[MULTI] + m[MULTIS]]
        m[m[MULTI] + m[m[PLACE] + step]] = other
        m[m[PLACE] + other] = m[m[PLACE] + step]


def take_back(m: Memory) -> None:
    """Undo all moves since the last decision."""
    while m[UNDOS] > 0:
        k = m[UNDOS] - 1
        at = m[UNDO] + 3 * k
        if m[at] == SHIFTED:
            shift(m, m[at + 1], m[at + 2])
        elif m[at] == INSERTED:
            erase(m, m[at + 1])
        else:
            insert(m, m[at + 1], m[at + 2])
        m[UNDOS] = k


def begin(m: Memory) -> None:
    """Count what a new memory holds: once, before anything else."""
    m[LOW], m[HIGH] = 0, FAR
    for p in range(m[LENGTH] - 1):
        instance = m[m[ORDER] + p]
        step = instance >> BITS
        for i in range(m[m[WRITES] + step], m[m[WRITES] + step + 1]):
            if not m[m[PINNED] + m[i]] or instance == first_of(m, step):
                held = (m[i] << BITS) + (instance & (SLOTS - 1))
                m[m[LAST] + held] = last_reader(m, held)
                count_bytes(m, held, m[m[SIZE] + m[i]])
    for p in range(m[LENGTH] - 1):
        refresh(m, m[m[ORDER] + p])
    keep_best(m)


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


def near(m: Memory, room: int) -> int:
    """A number below `room`, small ones more often."""
    return draw(m, max(room >> draw(m, 8), 1))


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


def insert_sources(m: Memory, weight: float, most: float, depth: int) -> None:
    """Run again, perhaps, what was kept alive for a step that was just inserted, and so on."""
    for k in range(m[UNDOS] - 1, MOST_UNDOS):
        if k >= m[UNDOS] or depth == 0:
            return
        instance = m[m[UNDO] + 3 * k + 1]
        step = instance >> BITS
        for i in range(m[m[READS] + step], m[m[READS] + step + 1]):
            p = m[m[AT] + instance]
            if m[m[LAST] + holder(m, m[i], p)] == instance and draw(m, 2):
                try_insert(m, p, m[i], weight, most)
        depth -= 1


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


def propose(m: Memory, shifts: int, depth: int, weight: float, most: float) -> None:
    """Shift an instance, add one, take one out, or take one out and add another."""
    kind = draw(m, 100)
    if kind < shifts:
        try_shift(m, m[m[ORDER] + draw(m, m[LENGTH] - 1)])
        return
    kind = (kind - shifts) % 3
    if kind < 2:
        try_erase(m)
    if kind == 0 or (kind == 1 and m[UNDOS] == 0):
        return
    p = draw(m, m[LENGTH] - 1)
    step = m[m[ORDER] + p] >> BITS
    first, stop = m[m[READS] + step], m[m[READS] + step + 1]
    if first < stop and try_insert(m, p, m[first + draw(m, stop - first)], weight, most):
        insert_sources(m, weight, most, depth)


def anneal(
    m: Memory,
    rolls: Sequence[float],
    temperature: float,
    weight: float,
    moves: int,
    shifts: int,
    depth: int,
) -> int:
    """Try moves at one temperature; how many of them were accepted.

    One is accepted if it adds less than temperature · -ln(u) to extra + weight · excess, for a
    random u; `rolls` are values of -ln(u).
    """
    accepted = 0
    for _ in range(moves):
        m[LAST_EXTRA], m[LAST_EXCESS] = m[EXTRA], m[EXCESS]
        most = temperature * rolls[draw(m, len(rolls))]
        propose(m, shifts, depth, weight, most)
        if m[UNDOS] == 0:
            continue
        if added(m, weight) <= most:
            m[UNDOS] = 0
            accepted += 1
            keep_best(m)
        else:
            take_back(m)
    return accepted
