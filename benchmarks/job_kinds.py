"""Ten trainings as people have them: a module, data on the disk, a loss, and a figure of success.

Each job has the module that PyTorch trains and `torch.onnx.export` writes, the files of its data,
the words of `gradtool train`, the same loss in PyTorch, and the figure that both are judged by.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from job_modules import (
    Adapted,
    Classifier,
    Detector,
    Distilled,
    Letters,
    Reversed,
    Table,
    Twins,
    UNet,
)
from torch import Tensor, nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "samples"))
import digits
import letters

Arrays = dict[str, np.ndarray[Any, Any]]
Outputs = Mapping[str, Tensor]
IGNORED = 255


@dataclass(frozen=True)
class Job:
    """A training.

    `module(seed)` is what both sides begin with; `data()` are arrays to train on and to test;
    `loss(outputs, batch)` is PyTorch's; `figure(outputs, test)` judges either side, of arrays.
    `write` puts the data on the disk and returns the words that name them.
    """

    name: str
    module: Callable[[int], nn.Module]
    inputs: Sequence[str]
    outputs: Sequence[str]
    data: Callable[[], tuple[Arrays, Arrays]]
    loss: Callable[[Outputs, Mapping[str, Tensor]], Tensor]
    figure: Callable[[Arrays, Arrays], float]
    words: Sequence[str]
    batch: int
    steps: int
    rate: float
    higher: bool = True
    write: Callable[[Path, Arrays, Arrays], Sequence[str]] | None = None
    before: Callable[[nn.Module, Arrays], None] = lambda *_: None
    read: Callable[[Path, Arrays], Callable[[Tensor], dict[str, Tensor]]] | None = None


def named(job: Job, found: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
    """Outputs of a module by name."""
    return dict(zip(job.outputs, [found] if isinstance(found, Tensor) else found, strict=True))


def _trained(module: nn.Module, job: Job, train: Arrays, steps: int) -> None:
    """Train a module by the loss of a job: what both sides begin with."""
    draw = torch.Generator().manual_seed(0)
    tensors = {n: torch.from_numpy(a) for n, a in train.items()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(len(next(iter(tensors.values()))), (job.batch,), generator=draw)
        batch = {n: a[rows] for n, a in tensors.items()}
        optimizer.zero_grad()
        job.loss(named(job, module(*(batch[n] for n in job.inputs))), batch).backward()
        optimizer.step()


def _encoder(module: nn.Module, _train: Arrays) -> None:
    """An encoder that knows where a sequence has which motif of another kind."""
    found = _motif_arrays(11, np.array([[7, 7, 2], [5, 3, 5], [9, 0, 1], [4, 4, 8]]))
    _trained(module, next(j for j in JOBS if j.name == "lora"), found, 300)


def _teacher(module: nn.Module, train: Arrays) -> None:
    """A teacher that knows the digits."""
    module.get_submodule("student").requires_grad_(False)
    job = replace(JOBS[0], outputs=("student", "logits"))
    _trained(module, job, train, 300)
    module.get_submodule("student").requires_grad_(True)


def npz(folder: Path, train: Arrays, _test: Arrays) -> Sequence[str]:
    np.savez(folder / "train.npz", **train)
    return ("--data", "train.npz")


def held(_folder: Path, train: Arrays) -> Callable[[Tensor], dict[str, Tensor]]:
    """Batches of arrays in memory."""
    tensors = {n: torch.from_numpy(a) for n, a in train.items()}
    return lambda rows: {n: a[rows] for n, a in tensors.items()}


def _decoded(folder: Path, train: Arrays) -> Callable[[Tensor], dict[str, Tensor]]:
    """Batches of pictures that are decoded as they are needed, as a Dataset does."""
    from PIL import Image

    files = [folder / "images" / str(c) / f"{n:04}.png" for n, c in enumerate(train["labels"])]
    labels = torch.from_numpy(train["labels"])

    def one(row: int) -> Tensor:
        with Image.open(files[row]) as image:
            pixels = np.array(image.convert("L"))
        return torch.from_numpy(pixels)[None].to(torch.float32).div(255)

    return lambda rows: {"x": torch.stack([one(n) for n in rows.tolist()]), "labels": labels[rows]}


def _images(folder: Path, train: Arrays, _test: Arrays) -> Sequence[str]:
    """A folder of pictures by class."""
    from PIL import Image

    for number, (image, label) in enumerate(zip(train["x"], train["labels"], strict=True)):
        place = folder / "images" / str(label)
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.round(image[0] * 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number:04}.png")
    return ("--data", "images")


def _table(folder: Path, train: Arrays, _test: Arrays) -> Sequence[str]:
    """Columns `f0`, `f1`, … and a text for each class."""
    with (folder / "train.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*(f"f{n}" for n in range(train["x"].shape[1])), "kind"])
        for x, label in zip(train["x"], train["labels"], strict=True):
            rows.writerow([*map(repr, x.tolist()), ("benign", "malignant")[label]])
    mapped = ("--map", "x=f*", "--map", "labels=kind", "--categories", "kind")
    return ("--data", "train.csv", *mapped)


def _digits() -> tuple[Arrays, Arrays]:
    """Images of 16 shades, as a file of 256 has them."""
    images, labels = digits.images()
    images = np.round(images * 255).astype(np.float32) / 255
    parts = digits.split(images, labels)
    train, test = ({"x": p["image"], "labels": p["labels"]} for p in parts.values())
    return train, test


def _cells() -> tuple[Arrays, Arrays]:
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    x = ((found.data - found.data.mean(0)) / found.data.std(0)).astype(np.float32)
    return _split({"x": x, "labels": 1 - found.target.astype(np.int64)}, 4)


def _split(arrays: Arrays, every: int) -> tuple[Arrays, Arrays]:
    tested = np.arange(len(next(iter(arrays.values())))) % every == 0
    return {n: a[~tested] for n, a in arrays.items()}, {n: a[tested] for n, a in arrays.items()}


def _letters() -> tuple[Arrays, Arrays]:
    found = letters.text()
    cut = len(found) - len(found) // letters.PART
    return letters.stretches(found[:cut]), letters.stretches(found[cut:])


def _motifs() -> tuple[Arrays, Arrays]:
    return _split(_motif_arrays(5, np.array([[3, 1, 4], [1, 5, 9], [2, 6, 5], [8, 9, 7]])), 5)


def _motif_arrays(seed: int, motifs: np.ndarray[Any, Any]) -> Arrays:
    """Sequences of 24 tokens, each of which holds one of four motifs of three tokens."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(10, 40, (1600, 24))
    labels = rng.integers(0, len(motifs), len(tokens))
    for row, at in enumerate(rng.integers(0, 21, len(tokens))):
        tokens[row, at : at + 3] = motifs[labels[row]]
    return {"tokens": tokens, "labels": labels}


def _sequences() -> tuple[Arrays, Arrays]:
    """Sequences of 10 tokens, and the same backwards behind a token that begins them."""
    rng = np.random.default_rng(6)
    source = rng.integers(1, 12, (2400, 10))
    wanted = source[:, ::-1].copy()
    said = np.concatenate([np.zeros_like(wanted[:, :1]), wanted[:, :-1]], 1)
    return _split({"source": source, "said": said, "labels": wanted}, 6)


def _shapes(count: int, side: int, seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    """Noisy pictures with a disc or a square, what is where, which it is, and its box."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    x = rng.normal(0, 0.35, (count, 1, side, side)).astype(np.float32)
    maps = np.zeros((count, side, side), np.int64)
    kinds, boxes = rng.integers(0, 2, count), np.zeros((count, 4), np.float32)
    for n in range(count):
        half = int(rng.integers(side // 8, side // 4))
        cy, cx = rng.integers(half, side - half, 2)
        square = np.maximum(abs(rows - cy), abs(columns - cx)) <= half
        inside = square if kinds[n] else (rows - cy) ** 2 + (columns - cx) ** 2 <= half**2
        x[n, 0][inside] += 1
        maps[n][inside] = 1 + kinds[n]
        boxes[n] = np.array([cy, cx, half, half]) / side
    return x, maps, kinds, boxes


def _masks() -> tuple[Arrays, Arrays]:
    """Edges of the pictures are not labelled."""
    x, maps, *_ = _shapes(480, 32, 7)
    maps[:, :2], maps[:, -2:], maps[..., :2], maps[..., -2:] = (IGNORED,) * 4
    return _split({"x": x, "labels": maps}, 5)


def _boxes() -> tuple[Arrays, Arrays]:
    x, _, kinds, boxes = _shapes(1000, 32, 8)
    return _split({"x": x, "labels_kind": kinds, "labels_place": boxes}, 5)


def _views() -> tuple[Arrays, Arrays]:
    """Two views of the same digit: each with its own noise and shift by a pixel."""
    images, _ = digits.images()
    rng = np.random.default_rng(9)

    def view() -> np.ndarray[Any, Any]:
        moved = [np.roll(i, rng.integers(-1, 2, 2), (1, 2)) for i in images]
        return (np.stack(moved) + rng.normal(0, 0.15, images.shape)).astype(np.float32)

    return _split({"a": view(), "b": view()}, 5)


def _ce(name: str, axis: int = -1, **settings: Any) -> Callable[..., Tensor]:
    def loss(outputs: Outputs, batch: Mapping[str, Tensor]) -> Tensor:
        scores = outputs[name].movedim(axis, -1).flatten(0, -2)
        return functional.cross_entropy(scores, batch["labels"].flatten(), **settings)

    return loss


def _detection(outputs: Outputs, batch: Mapping[str, Tensor]) -> Tensor:
    kind = functional.cross_entropy(outputs["kind"], batch["labels_kind"])
    return kind + 5 * functional.mse_loss(outputs["place"], batch["labels_place"])


def _contrast(outputs: Outputs, _batch: Mapping[str, Tensor]) -> Tensor:
    a, b = (functional.normalize(outputs[n], dim=1) for n in ("left", "right"))
    scores, own = a @ b.T / 0.07, torch.arange(len(a))
    return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2


def _distillation(outputs: Outputs, batch: Mapping[str, Tensor]) -> Tensor:
    teacher = outputs["teacher"].detach()
    soft = functional.kl_div(
        functional.log_softmax(outputs["student"] / 2, 1),
        functional.softmax(teacher / 2, 1),
        reduction="batchmean",
    )
    return 4 * soft + functional.cross_entropy(outputs["student"], batch["labels"])


def _right(name: str, axis: int = -1, labels: str = "labels") -> Callable[[Arrays, Arrays], float]:
    def share(outputs: Arrays, test: Arrays) -> float:
        return float((outputs[name].argmax(axis) == test[labels]).mean())

    return share


def _perplexity(outputs: Arrays, test: Arrays) -> float:
    scores = torch.from_numpy(outputs["logits"]).flatten(0, -2)
    return float(functional.cross_entropy(scores, torch.from_numpy(test["labels"]).flatten()).exp())


def _iou(outputs: Arrays, test: Arrays) -> float:
    """The mean over classes of intersection over union, of the places that are labelled."""
    counts = test["labels"] != IGNORED
    found, right = outputs["logits"].argmax(1)[counts], test["labels"][counts]
    pairs = [(found == c, right == c) for c in range(3)]
    return float(np.mean([(a & b).sum() / (a | b).sum() for a, b in pairs]))


def _placed(outputs: Arrays, test: Arrays) -> float:
    """The share of right kinds, less the mean distance of boxes."""
    apart = np.abs(outputs["place"] - test["labels_place"]).mean()
    return _right("kind", labels="labels_kind")(outputs, test) - float(apart)


def _retrieved(outputs: Arrays, _test: Arrays) -> float:
    """How often a view is nearest to its own other view, among sixty."""
    a, b = (outputs[n] / np.linalg.norm(outputs[n], axis=1, keepdims=True) for n in outputs)
    own = np.arange(60)
    starts = range(0, len(a) - 59, 60)
    return float(np.mean([((a[s : s + 60] @ b[s : s + 60].T).argmax(1) == own) for s in starts]))


JOBS = [
    Job("digits", Classifier, ("x",), ("logits",), _digits, _ce("logits"), _right("logits"),
        ("--loss", "ce", "--train-mode"), 32, 250, 2e-3, write=_images, read=_decoded),
    Job("table", Table, ("x",), ("logits",), _cells, _ce("logits"), _right("logits"),
        ("--loss", "ce"), 32, 200, 3e-3, write=_table),
    Job("gpt", Letters, ("tokens",), ("logits",), _letters, _ce("logits"), _perplexity,
        ("--loss", "ce:logits@axis=-1"), 16, 200, 3e-3, higher=False),
    Job("lora", Adapted, ("tokens",), ("logits",), _motifs, _ce("logits"), _right("logits"),
        ("--loss", "ce", "--lora", "8", "--lora-target", "*qkv*", "--lora-target", "*mlp*",
         "--wrt", "head.*"), 32, 100, 3e-3, before=_encoder),
    Job("seq2seq", Reversed, ("source", "said"), ("logits",), _sequences, _ce("logits"),
        _right("logits"), ("--loss", "ce:logits@axis=-1"), 64, 400, 5e-3),
    Job("unet", UNet, ("x",), ("logits",), _masks, _ce("logits", 1, ignore_index=IGNORED), _iou,
        ("--loss", f"ce:logits@axis=1,ignore={IGNORED}"), 16, 150, 3e-3),
    Job("detection", Detector, ("x",), ("kind", "place"), _boxes, _detection, _placed,
        ("--loss", "ce:kind", "--loss", "5*mse:place"), 32, 250, 2e-3),
    Job("contrastive", Twins, ("a", "b"), ("left", "right"), _views, _contrast, _retrieved,
        ("--loss", "contrastive:left,right"), 64, 200, 2e-3),
    Job("distillation", Distilled, ("x",), ("student", "teacher"), _digits, _distillation,
        _right("student"), ("--loss", "distill:student,teacher@T=2", "--loss", "ce:student",
        "--no-grad", "teacher*"), 32, 200, 2e-3, before=_teacher),
]  # fmt: skip
