"""Products with matrices of few bits against our product of floats of the same shape, one thread.

    python benchmarks/low_bits.py

Prints the speed of `x Wᵀ` and of its gradient `dy W`, relative to float32 (above 1 is faster): the
least of some interleaved turns of each, of processor time.  About a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from gradtool.native import gemm, low_bits

# m, rows, columns
SHAPES = ((512, 3072, 1024), (512, 1024, 3072), *((m, 2048, 2048) for m in (128, 32, 16, 8, 1)))
TURNS, SECONDS, BLOCK = 9, 0.05, 32
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def operands(
    rng: np.random.Generator, rows: int, columns: int, bits: int, block: int
) -> tuple[Array, ...]:
    """Codes, scales and packed zero points."""
    blocks = columns // block
    sizes = (rows, blocks, block * bits // 8), (rows, -(-blocks * bits // 8))
    codes, zero = (rng.integers(0, 256, size).astype(np.uint8) for size in sizes)
    return codes, rng.uniform(0.01, 0.02, (rows, blocks)).astype(np.float32), zero


def calls(m: int, rows: int, columns: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Products by name, forward and backward, of floats first."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(rows, columns)).astype(np.float32)
    for turned in (True, False):
        n, k = (rows, columns) if turned else (columns, rows)
        x, y = rng.normal(size=(m, k)).astype(np.float32), np.empty((m, n), np.float32)
        work = np.empty(low_bits.work(m, n, k) // 4, np.float32)
        way = "forward" if turned else "dx"
        yield f"{way} float32", gemm.gemm(x, w, y, work, b_turned=turned)
        for bits, block in ((2, BLOCK), (4, BLOCK), (8, BLOCK), (8, columns)):
            codes, scale, zero = operands(rng, rows, columns, bits, block)
            yield (
                f"{way} {bits} bits{' by row' if block == columns else ''}",
                low_bits.product(
                    x, codes, scale, y, work, bits=bits, block=block, turned=turned, zero=zero
                ),
            )


def seconds(call: Callable[[], object]) -> float:
    """Processor time of one call, over as many as fill a turn."""
    start = time.process_time()
    count = 0
    while time.process_time() - start < SECONDS:
        call()
        count += 1
    return (time.process_time() - start) / count


def main() -> None:
    for m, rows, columns in SHAPES:
        found = dict(calls(m, rows, columns))
        best = dict.fromkeys(found, float("inf"))
        for _ in range(TURNS):
            best = {name: min(best[name], seconds(call)) for name, call in found.items()}
        print(f"x [{m}, {columns}], W [{rows}, {columns}]")
        for name, took in best.items():
            base = best[f"{name.split()[0]} float32"]
            speed = 2 * m * rows * columns / took / 1e9
            print(f"  {name:22} {took * 1e3:7.2f} ms  {speed:5.1f} GF/s  {base / took:5.2f}")


if __name__ == "__main__":
    main()
