"""Moves on a schedule in a memory: an instance of a step goes elsewhere, comes in or goes out.

Every move can be taken back.  These functions are in the subset of Python that numba compiles, and
answer the same when they are interpreted.
"""

from __future__ import annotations

from gradtool.planning.search.local.held import (
    FAR,
    add,
    attach,
    detach,
    excess,
    holder,
    latest,
    refresh,
    seat,
    unseat,
    update_last,
)
from gradtool.planning.search.local.memory import (
    AT,
    BITS,
    COST,
    EXCESS,
    EXTRA,
    GAP,
    HIGH,
    LAST,
    LENGTH,
    LOW,
    ORDER,
    OWN,
    PINNED,
    READS,
    SIZE,
    SLOTS,
    UNDO,
    UNDOS,
    WRITES,
    Memory,
)

SHIFTED, INSERTED, ERASED = 0, 1, 2


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
