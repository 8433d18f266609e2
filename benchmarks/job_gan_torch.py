"""PyTorch's generator and discriminator: `python job_gan_torch.py FOLDER SEED`.

Two optimizers in turn, on the weights in FOLDER; points of the trained generator go into
`FOLDER/eager.npy`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from job_clock import Clock
from job_gan import BATCH, NOISE, RATE, ROUNDS, arc
from torch import Tensor, nn
from torch.nn import functional

WIDE = 64


class Discriminator(nn.Module):
    """Points [N, 2] → a score each."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = nn.Sequential(
            nn.Linear(2, WIDE), nn.LeakyReLU(0.2), nn.Linear(WIDE, WIDE), nn.LeakyReLU(0.2),
            nn.Linear(WIDE, 1),
        )  # fmt: skip

    def forward(self, points: Tensor) -> Tensor:
        return self.judge(points)


class Pair(Discriminator):
    """Noise [N, 4] → points of the generator, and the discriminator's score of each."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        super().__init__()
        self.make = nn.Sequential(
            nn.Linear(NOISE, WIDE), nn.ReLU(), nn.Linear(WIDE, WIDE), nn.ReLU(), nn.Linear(WIDE, 2)
        )

    def forward(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        points = self.make(noise)
        return self.judge(points), points


def write(folder: Path, seed: int) -> None:
    """Both models, the weights that they begin with, and the points."""
    pair = Pair(seed)
    judge = Discriminator()
    judge.judge.load_state_dict(pair.judge.state_dict())
    torch.save(pair.state_dict(), folder / "start.pt")
    np.save(folder / "points.npy", arc(4096, seed))
    for name, module, sizes, outputs in (
        ("judge", judge, (2, 2), ["score"]), ("pair", pair, (2, NOISE), ["score", "points"]),
    ):  # fmt: skip
        torch.onnx.export(
            module, (torch.zeros(sizes),), folder / f"{name}.onnx", dynamo=True, optimize=False,
            input_names=["x"], output_names=outputs, dynamic_shapes=({0: "batch"},),
            external_data=False, verbose=False,
        )  # fmt: skip


def eager(folder: Path, seed: int) -> None:
    """Train by PyTorch in the same way."""
    torch.set_num_threads(1)
    draw, clock, pair = torch.Generator().manual_seed(seed), Clock(), Pair(seed)
    pair.load_state_dict(torch.load(folder / "start.pt"))
    points = torch.from_numpy(np.load(folder / "points.npy"))
    first, second = (
        torch.optim.Adam(part.parameters(), lr=RATE, betas=(0.5, 0.999))
        for part in (pair.judge, pair.make)
    )
    labels = torch.cat([torch.ones(BATCH, 1), torch.zeros(BATCH, 1)])
    bce = functional.binary_cross_entropy_with_logits
    made = pair.make(torch.randn(BATCH, NOISE, generator=draw)).detach()
    for _ in range(ROUNDS):
        real = points[torch.randint(len(points), (BATCH,), generator=draw)]
        first.zero_grad()
        bce(pair.judge(torch.cat([real, made])), labels).backward()
        first.step()
        second.zero_grad()
        score, made = pair(torch.randn(BATCH, NOISE, generator=draw))
        bce(score, labels[:BATCH]).backward()
        second.step()
        made = made.detach()
        clock.stepped()
    clock.ended()
    with torch.no_grad():
        found = pair.make(torch.randn(8 * BATCH, NOISE, generator=draw))
    np.save(folder / "eager.npy", found.numpy())


if __name__ == "__main__":
    eager(Path(sys.argv[1]), int(sys.argv[2]))
