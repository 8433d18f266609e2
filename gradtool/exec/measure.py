"""Measured memory of a step: the arena's high-water mark as observed, and bytes beside it."""

from __future__ import annotations

import gc
import secrets
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtool.errors import GradtoolError
from gradtool.exec.executor import Executor
from gradtool.exec.memory_meter import beside
from gradtool.exec.process_memory import Resident, resident
from gradtool.ops.shared.rng import repeatable
from gradtool.planning.packing import overlap
from gradtool.planning.plan import ALWAYS_LIVE, Buffer

PATTERNS = (0xA5, 0x5A)
POISON = 0xFF
STAYS = 4096  # bytes after a step that are worth another look
BLOCK = 2**16


@dataclass(frozen=True)
class Measurement:
    """One step, measured. Bytes, but for `seconds` (the median of the repeats).

    `planned` is the total of the plan.  `high_water` is where the last byte that a step changed
    lies, `outside` the most that Python and numpy, on a CUDA device CuPy there, held beside the
    arena from the first kernel until the results were handed over, `retained` what they still held
    after the last kernel.  Part of `outside` are `dynamic`, the most that values of data-dependent
    shape took, and `results`, what handing them over took: the copies, where there are any.
    Weights that are `mapped` are read where they lie in a file, beside all of that; `process` is
    what the whole process then has, None where the system does not tell.
    """

    planned: int
    high_water: int
    outside: int
    retained: int
    dynamic: int
    results: int
    seconds: float
    mapped: int = 0
    process: Resident | None = None

    @property
    def peak(self) -> int:
        """Bytes that the step took in all."""
        return self.high_water + self.outside


def measure(executor: Executor, repeat: int = 3, *, copy: bool = False) -> Measurement:
    """Run and measure a few steps of an executor with its inputs set.

    The results are handed over as copies, or as what lies in the arena.
    """
    executor.step()
    seconds = timed(executor, repeat)
    high = high_water(executor)
    outside, retained = beside_arena(executor)
    results = handing_over(executor, copy=copy)
    return Measurement(
        planned=executor.plan.total,
        high_water=high,
        outside=max(outside, retained + results),
        retained=retained,
        dynamic=executor.dynamic.peak,
        results=results,
        seconds=float(np.median(seconds)),
        mapped=executor.plan.mapped,
        process=resident(),
    )


def timed(executor: Executor, repeat: int) -> list[float]:
    """Seconds of each of `repeat` steps, all from the same parameters."""
    taken = []
    for _ in range(max(repeat, 1)):
        executor.rewind()
        executor.device.synchronize()
        start = time.perf_counter()
        executor.step()
        executor.device.synchronize()
        taken.append(time.perf_counter() - start)
    return taken


def fixed_bytes(executor: Executor) -> int:
    """End of the always-live part of the arena."""
    ends = [b.offset + b.bytes for b in executor.plan.buffers if b.region in ALWAYS_LIVE]
    return max(ends, default=0)


def high_water(executor: Executor) -> int:
    """The end of the last byte that a step changes, seen by filling the arena with patterns."""
    start = fixed_bytes(executor)
    last = start
    for pattern in PATTERNS:
        executor.arena[start:] = pattern
        executor.step()
        last = max(last, _last_change(executor, start, pattern))
    return last


def _last_change(executor: Executor, start: int, pattern: int) -> int:
    """The end of the last byte behind `start` to differ from the pattern; searched in blocks."""
    for end in range(executor.arena.size, start, -BLOCK):
        first = max(start, end - BLOCK)
        block = executor.device.to_host(executor.arena[first:end])
        changed = np.flatnonzero(block != pattern)
        if changed.size:
            return first + int(changed[-1]) + 1
    return start


def beside_arena(executor: Executor) -> tuple[int, int]:
    """The most bytes allocated during a step outside the arena, and the bytes left after it.

    If some are left, another step is measured: the interpreter builds its table of strings
    anew now and then, but never in two steps in a row.
    """
    executor.step()
    found = _beside_arena(executor)
    return min(found, _beside_arena(executor)) if found[1] > STAYS else found


def _beside_arena(executor: Executor) -> tuple[int, int]:
    """The same of one step.

    Collecting garbage empties the interpreter's free lists, which no kernel holds.
    """
    with beside(executor.device) as meter:
        executor.step()
        gc.collect()
        before = most = meter.held
        for call in executor.calls:
            gc.collect()
            meter.restart()
            call()
            most = max(most, meter.most)
        gc.collect()
        now = meter.held
    return most - before, max(now - before, 0)


def handing_over(executor: Executor, *, copy: bool) -> int:
    """The most that taking the results of a step took: copies of them, or views."""
    with beside(executor.device) as meter:
        held = executor.outputs(copy=copy), executor.gradients(copy=copy)
        most = meter.most
        del held
    return most


def check_arena(executor: Executor) -> None:
    """Poison every buffer when it dies; results must keep their bits.

    Raises:
        GradtoolError: two live buffers overlap, or a value was read after its buffer died (the
            first output that differs is named).
    """
    clash = overlap(executor.plan.buffers)
    if clash is not None:
        first, second = (b.name for b in clash)
        raise GradtoolError(f"{first!r} and {second!r} overlap while both live: a planning bug")
    seed = secrets.randbits(64)
    executor.rewind()
    with repeatable(seed):
        executor.step()
    outputs = executor.program.outputs
    before = [_content(executor.result(v)) for v in outputs]
    roots = {executor.program.storage(v) for v in outputs}
    dying: dict[int, list[Buffer]] = {}
    for buffer in executor.plan.buffers:
        if buffer.region not in ALWAYS_LIVE and roots.isdisjoint(buffer.values):
            dying.setdefault(buffer.last, []).append(buffer)
    executor.rewind()
    executor.arena[fixed_bytes(executor) :] = POISON
    with repeatable(seed):
        for index, call in enumerate(executor.calls):
            call()
            for buffer in dying.get(index, ()):
                executor.arena[buffer.offset : buffer.offset + buffer.bytes] = POISON
    for value, content in zip(outputs, before, strict=True):
        if _content(executor.result(value)) != content:
            name = executor.program.values[value].name
            raise GradtoolError(
                f"{name!r} changed when dead buffers were overwritten: a planning bug"
            )


def _content(held: Any) -> Any:
    """Comparable content: the bits of an array, the words of text, of a sequence each item's."""
    if held is None or isinstance(held, list):
        return held and [_content(item) for item in held]
    return held.tolist() if held.dtype.kind == "O" else held.tobytes()
