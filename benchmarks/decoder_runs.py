"""Decoders in onnxruntime and in onnxruntime-genai: the loss of a file, and what it generates."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

Array = np.ndarray[Any, Any]
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
         "tensor(int32)": np.int32}  # fmt: skip


class Stock:
    """A decoder in onnxruntime without a past, perhaps with an adapter."""

    def __init__(self, file: Path, size: int, adapter: Path | None = None) -> None:
        """Open it; `size` is that of a head, where the file leaves it open."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.size, self.windows = size, windows_of(file)
        self.run, self.adapter = onnxruntime.RunOptions(), onnxruntime.LoraAdapter()
        if adapter is not None:
            self.adapter.Load(str(adapter))
            self.run.add_active_adapter(self.adapter)

    def scores(self, ids: Array) -> Array:
        """Logits `[batch, sequence, vocabulary]`."""
        batch, length = ids.shape
        known = {
            "input_ids": ids, "attention_mask": np.ones_like(ids),
            "position_ids": np.broadcast_to(np.arange(length), ids.shape),
        }  # fmt: skip
        feeds = {}
        for value in self.session.get_inputs():
            kind = TYPES[value.type]
            if value.name in known:
                feeds[value.name] = known[value.name].astype(kind)
            else:
                _, heads, _, size = value.shape
                past = self.windows.get(value.name, 0)
                size = size if isinstance(size, int) else self.size
                feeds[value.name] = np.zeros((batch, heads, past, size), kind)
        return np.asarray(self.session.run(["logits"], feeds, self.run)[0], np.float64)


def windows_of(file: Path) -> dict[str, int]:
    """The room that a cache of a window has, by its input."""
    found = {}
    for node in onnx.load(file, load_external_data=False).graph.node:
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if given.get("sliding_window_cache"):
            found |= dict.fromkeys(node.input[3:5], given["local_window_size"])
    return found


def loss_of(stock: Stock, ids: Array, labels: Array) -> float:
    """The mean cross-entropy of each score against the next label."""
    scores = stock.scores(ids)[:, :-1]
    scores = scores - scores.max(-1, keepdims=True)
    share = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return float(-np.take_along_axis(share, labels[:, 1:, None], -1).mean())


def greedy(stock: Stock, ids: Array, length: int) -> list[int]:
    """Tokens up to a length, the likeliest each."""
    found = [int(n) for n in ids]
    while len(found) < length:
        found.append(int(stock.scores(np.array([found], np.int64))[0, -1].argmax()))
    return found


def greedy_by_genai(
    folder: Path, file: Path, ids: Array, length: int, adapter: Path | None, scratch: Path
) -> list[int]:
    """The same by onnxruntime-genai, of a file in the place of the folder's own."""
    import onnxruntime_genai as genai

    shutil.copytree(
        folder, scratch, ignore=shutil.ignore_patterns("model.onnx*", "cache"), dirs_exist_ok=True
    )
    shutil.copy(file, scratch / "model.onnx")
    for data in file.parent.glob(f"{file.name}.*data"):
        shutil.copy(data, scratch)
    model = genai.Model(str(scratch))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=length, min_length=length, do_sample=False)
    generator = genai.Generator(model, settings)
    if adapter is not None:
        adapters = genai.Adapters(model)
        adapters.load(str(adapter), "trained")
        generator.set_active_adapter(adapters, "trained")
    generator.append_tokens(ids[None].astype(np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)]
