"""PyTorch's side of a job, in a process of its own: `python job_eager.py NAME FOLDER SEED`.

It begins with the weights in `FOLDER/start.pt` and the arrays of `FOLDER/arrays.npz`, takes the
steps of the job with AdamW, and writes the outputs of the test into `FOLDER/eager.npz`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from job_clock import Clock
from job_kinds import JOBS, held, named


def main() -> None:
    """Train, and write what the test comes to."""
    name, folder, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    job = next(job for job in JOBS if job.name == name)
    torch.set_num_threads(1)
    module = job.module(seed)
    module.load_state_dict(torch.load(folder / "start.pt"))
    if hasattr(module, "trained"):
        module = module.trained()
    with np.load(folder / "train_arrays.npz") as given:
        train = dict(given)
    read = (job.read or held)(folder, train)
    chosen = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(chosen, lr=job.rate)
    draw, count, clock = torch.Generator().manual_seed(seed), len(train[job.inputs[0]]), Clock()
    step = 0
    module.train()
    while step < job.steps:
        order = torch.randperm(count, generator=draw)
        for rows in order[: count // job.batch * job.batch].split(job.batch):
            batch = read(rows)
            optimizer.zero_grad()
            job.loss(named(job, module(*(batch[n] for n in job.inputs))), batch).backward()
            optimizer.step()
            clock.stepped()
            step += 1
            if step == job.steps:
                break
    clock.ended()
    module.eval()
    with np.load(folder / "test_arrays.npz") as given, torch.no_grad():
        found = named(job, module(*(torch.from_numpy(given[n]) for n in job.inputs)))
    np.savez(folder / "eager.npz", **{n: t.numpy() for n, t in found.items()})


if __name__ == "__main__":
    main()
