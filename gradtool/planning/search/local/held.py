"""Instances of steps and storages in a memory, and the bytes above the budget, kept up to date.

These functions are in the subset of Python that numba compiles, and answer the same when they are
interpreted.  Where several instances of a storage exist, the latest is read.
"""

from __future__ import annotations

from gradtool.planning.search.local.memory import (
    AT,
    BITS,
    BUDGET,
    COUNT,
    END,
    EXCESS,
    GAP,
    HIGH,
    LAST,
    LENGTH,
    LOW,
    MAKER,
    MULTI,
    MULTIS,
    ORDER,
    OWN,
    PINNED,
    PLACE,
    READERS,
    SEAT,
    SIZE,
    SLOTS,
    TAKES,
    TARGET,
    TOUCHED,
    TOUCHES,
    WORK,
    WRITES,
    Memory,
)

FAR = 1 << 40


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


def begin(m: Memory) -> None:
    """Count what a new memory holds: once, before anything else."""
    m[LOW], m[HIGH] = 0, FAR
    for p in range(m[LENGTH]):
        m[EXCESS] += excess(m, p)
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
