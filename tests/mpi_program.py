"""What ranks that MPI has started come to, one JSON object printed by the first: run by tests."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import ml_dtypes
import numpy as np
import rank_norms
import table_cases
from rank_cases import difference, drawn, trained

from gradtool.ranks.mpi import Ranks


def trainings(group, count):
    """The worst difference of some trainings from those of one process; which names differ."""
    worst, odd = 0.0, []
    for case in range(count):
        model, options, _ = drawn(group.size, case, seed=1)
        found = trained(model, options, group)
        how = {"sync_batchnorm": True, "shard": ["optimizer", "gradients"][case % 2]}
        normed = rank_norms.trained(case, group, **how)
        if group.rank == 0:
            worst = max(worst, difference(normed, rank_norms.trained(case)))
        for name, array in (*found[2].items(), *normed[2].items()):
            if len(set(group.gather_bytes(array.tobytes()))) > 1:
                odd.append(name)
        if group.rank == 0:
            model, _, alone = drawn(group.size, case, seed=1)
            worst = max(worst, difference(found, trained(model, alone)))
    return {"worst": worst, "odd": odd}


def tables(group, count):
    """The worst difference of trainings whose ranks have rows of tables; one step of stale rows."""
    worst = 0.0
    for case in range(count):
        model, data, options, several = table_cases.drawn(case, seed=4)
        ways = [{**options, "steps": 50, "ema": None}, {**options, "steps": 1, "ema": None}]
        for alone, how in zip(ways, ({}, {"staleness": 2, "plan": "keep"}), strict=True):
            found = table_cases.trained(model, data, alone | several | how, group)
            if group.rank == 0:
                expected = table_cases.trained(model, data, alone)
                worst = max(worst, difference(found[:3], expected[:3]))
    return worst


def sums(group):
    """By type, whether sums of arrays of odd sizes are right, and the same everywhere."""
    made = {}
    for dtype in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        pending, given = [], []
        for size in (1, 3, 1000, 0, 77777):
            terms = [
                np.random.default_rng([rank, size]).standard_normal(size).astype(dtype)
                for rank in range(group.size)
            ]
            own = terms[group.rank].copy()
            given.append((terms, own))
            pending.append(group.add(own))
        for each in reversed(pending):
            group.wait(each)
        right = same = True
        for terms, own in given:
            exact = sum(term.astype(np.float64) for term in terms)
            near = float(ml_dtypes.finfo(dtype).eps) * 4
            right &= bool(np.allclose(own.astype(np.float64), exact, rtol=near, atol=near))
            same &= len(set(group.gather_bytes(own.tobytes()))) == 1
            if group.ordered:
                wide = np.float32 if own.dtype.itemsize < 4 else dtype
                total = terms[0].astype(wide)
                for term in terms[1:]:
                    total = total + term.astype(wide)
                right &= total.astype(dtype).tobytes() == own.tobytes()
        made[np.dtype(dtype).name] = [right, same]
    return made


if __name__ == "__main__":
    ordered, count = sys.argv[1] == "ordered", int(sys.argv[2])
    ranks = Ranks(timeout=60, ordered=ordered)
    found = {
        "sums": sums(ranks),
        "tables": tables(ranks, count * ordered),
        **trainings(ranks, count),
    }
    if ranks.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    ranks.close()
