"""Gradients of random control flow: valid, run by stock onnxruntime, right in float64.

    python benchmarks/loops.py [COUNT] [--first 0]

Of three models one is at random: bodies capture values, hold initializers and constants of their
own, nest, and carry sequences; their inputs are typed or not.  One is a recurrent network, as
tf2onnx writes those of Keras; one has more turns, and reads and writes along any axis.  Turns that
are taken again in backward give the same bits.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from loop_checks import check, exclusion
from random_cells import Cells
from random_loops import Draw
from random_turns import Turns


def main() -> int:
    """Try the models of some seeds; the exit code is whether one was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=300, help="how many models")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first model")
    given = parser.parse_args()
    count = given.count
    excluded: Counter[str] = Counter()
    used: Counter[str] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="gradtool-") as folder:
        for seed in range(given.first, given.first + count):
            draw = (Draw, Cells, Turns)[seed % 3](seed)
            proto = draw.model()
            reason = exclusion(proto)
            if reason:
                excluded[reason] += 1
                continue
            used.update(draw.used)
            try:
                check(proto, Path(folder), draw.feeds())
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                wrong += 1
                print(f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    for feature, models in sorted(used.items()):
        print(f"{models:6}  {feature}")
    for reason, models in sorted(excluded.items()):
        print(f"{models:6}  left out: {reason}")
    print(f"{count} models, {count - sum(excluded.values())} tried, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
