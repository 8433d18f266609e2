"""What each rank of a training of GPT-2 takes: planned, and measured while it trains.

    python benchmarks/ranks_memory.py [--ranks 4] [--steps 4]

Prints for each way to shard, for a stage of the model on each rank, and for both (two stages, the
ranks of each of which have parts of its state) what every rank planned, what it measured, the bytes
of its state by those of one process, and those of its sums of gradients.  The model has 124 million
parameters and takes sequences of 64 tokens, one on each rank or one a micro-batch; it needs an MPI,
and about 2.2 GiB of memory a rank.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tracemalloc
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
from state_bytes import TOKENS, WORDS, gpt2

import gradtool as gt
from gradtool.ranks.launch import starter
from gradtool.ranks.mpi import Ranks
from gradtool.reports.ranks import RankLayout
from gradtool.reports.stages import StageLayout
from gradtool.training.callbacks import Watcher
from gradtool.training.graphs import Recipe, graphs_of
from gradtool.training.layouts import PaperTraining, layout
from gradtool.training.links import Link, step_seconds
from gradtool.training.options import TrainOptions
from gradtool.training.stage_layouts import pipeline
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.training import training_graph

MIB = 2**20
WAYS = ("none", "optimizer", "gradients", "stages", "both")
LINES = ("stages", "both")
LINK = Link(1e9, 1e-5)


class Measuring(Watcher):
    """Measures the arrays that are there after a step, and what else one held at its highest."""

    def __init__(self) -> None:
        self.before = self.outside = self.held = 0

    def stepped(self, step: int, *_: object) -> None:
        _, peak = tracemalloc.get_traced_memory()
        if step > 2:
            self.outside = max(self.outside, peak - self.before)
            arrays = tracemalloc.DomainFilter(inclusive=True, domain=np.lib.tracemalloc_domain)
            traces = tracemalloc.take_snapshot().filter_traces([arrays]).traces
            self.held = sum(trace.size for trace in traces)
        self.before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()


def rank(path: str, way: str, steps: int) -> None:
    """Train as one rank; the first prints what all of them took."""
    group = Ranks(timeout=600)
    planned = on_paper(path, group, way)
    how = {"shard": way}
    if way in LINES:
        stages, shard = line(way, group)
        how = {"stages": stages, "shard": shard}
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, WORDS, (group.size * steps, TOKENS + 1))
    data = {"ids": tokens[:, :-1], "labels": tokens[:, 1:]}
    watcher = Measuring()
    tracemalloc.start()
    with gt.Trainer(
        path, loss="ce", optimizer="adamw", batch=group.size, steps=steps, **how
    ) as trainer:
        trainer.fit(data, group=group, watcher=watcher)
        taken = watcher.held + watcher.outside
    sizes = planned.peak_bytes, taken, planned.state_bytes, planned.gradients_bytes
    found = group.gather(np.array(sizes))
    if group.rank == 0:
        sys.stdout.write(json.dumps(found.tolist()) + "\n")
    group.close()


def line(way: str, group: Ranks) -> tuple[int, str]:
    """How many stages there are, and what ranks that have the same have parts of."""
    return (group.size, "none") if way == "stages" else (2, "optimizer")


def on_paper(path: str, group: Ranks, way: str) -> RankLayout | StageLayout:
    """What a rank is planned to take."""
    wanted = GradOptions(loss="ce", optimizer="adamw")
    recipe = Recipe(partial(training_graph, gt.load(path)), wanted)
    graphs = graphs_of(recipe, TrainOptions(), in_two=True)
    paper = PaperTraining(graphs, recipe.updates, {}, LINK, step_seconds)
    if way not in LINES:
        return layout(paper, group, shard=way)
    stages, shard = line(way, group)
    several, replicas = replace(paper, micro_batches=stages), group.size // stages
    found = pipeline(several, stages=stages, replicas=replicas, shard=shard)
    return found.stages[group.rank % stages]


def saved(folder: Path) -> str:
    """GPT-2 with drawn weights, in a file."""
    model = gpt2()
    (places,) = (value for value in model.graph.inputs if value.name == "places")
    model.graph.inputs.remove(places)
    places.const_value = ir.tensor(np.arange(TOKENS), name="places")
    rng = np.random.default_rng(0)
    for name, value in model.graph.initializers.items():
        assert value.const_value is not None  # noqa: S101 - all have one
        shape = value.const_value.shape.numpy()
        drawn = rng.standard_normal(shape, np.float32) * np.float32(0.02)
        value.const_value = ir.tensor(drawn, name=name)
    model.graph.register_initializer(places)
    path, _ = gt.save(model, folder / "gpt2.onnx")
    return str(path)


def main() -> None:
    """Start the ranks for each way, and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rank", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        rank(*given.rank, given.steps)
        return
    print("way          rank  planned MiB  measured MiB    ratio  state MiB  of one  sums MiB")
    whole = 0
    with tempfile.TemporaryDirectory() as folder:
        path = saved(Path(folder))
        for way in WAYS:
            again = [sys.executable, __file__, "--rank", path, way, "--steps", str(given.steps)]
            command = [*starter(given.ranks), *again]
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            if told.returncode:
                sys.exit(told.stderr)
            found = json.loads(told.stdout.splitlines()[-1])
            whole = whole or found[0][2]
            for number, (planned, taken, state, sums) in enumerate(found):
                print(
                    f"{way:12} {number:4} {planned / MIB:12.1f} {taken / MIB:13.1f}"
                    f" {taken / planned:8.4f} {state / MIB:10.1f} {state / whole:7.3f}"
                    f" {sums / MIB:9.1f}"
                )


if __name__ == "__main__":
    main()
