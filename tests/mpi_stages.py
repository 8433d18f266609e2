"""What stages on ranks that MPI has started come to, one JSON object printed by the first."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import stage_cases
from rank_cases import difference, trained

from gradtool.ranks.mpi import Ranks
from gradtool.training.staged import joined
from gradtool.training.stages import standing


def trainings(group, stages, count):
    """The worst difference of some trainings from those of one process; which names differ."""
    worst, odd = 0.0, []
    for case in range(count):
        model, options, alone = stage_cases.drawn(group.size, stages, case, seed=1)
        found = trained(model, options, group)
        place = standing(group, stages)
        for name, array in found[2].items():
            if len(set(place.replicas.gather_bytes(array.tobytes()))) > 1:
                odd.append(name)
        whole = joined(place.line, found[2])
        if group.rank == 0:
            worst = max(worst, difference((*found[:2], whole), trained(model, alone)))
    return {"worst": worst, "odd": odd}


if __name__ == "__main__":
    stages, count = int(sys.argv[1]), int(sys.argv[2])
    ranks = Ranks(timeout=60, ordered=True)
    found = trainings(ranks, stages, count)
    if ranks.rank == 0:
        sys.stdout.write(json.dumps(found) + "\n")
    ranks.close()
