"""Small models as PyTorch exports them: for stock_runtime.py.

    python benchmarks/torch_exports.py DIR [NAME…]

Each by the dynamo exporter, optimised and raw, and by TorchScript; with a fixed batch and an open
one.  What an exporter cannot do is said.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LENGTH, VOCABULARY = 16, 4, 6, 12


class CausalAttention(nn.Module):
    """Attention whose queries, keys and values come from one product, cut by `unbind`."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        cut = self.qkv(x).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = cut.unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class ChunkedAttention(nn.Module):
    """Attention whose queries, keys and values are chunks, with a mask and a softmax by hand."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            part.reshape(b, t, HEADS, d // HEADS).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / (d // HEADS) ** 0.5
        if self.causal:
            hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d)


class Block(nn.Module):
    """A residual block of attention and a perceptron."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = attention
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Language(nn.Module):
    """A decoder over tokens."""

    def __init__(self, attention: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(attention()), Block(attention()))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Rotary(nn.Module):
    """Attention with rotated queries and keys, grouped heads, a gated perceptron, RMS norms."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))
        self.q, self.kv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, 24), nn.Linear(WIDTH, 24)
        self.down = nn.Linear(24, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """A block of grouped attention with turned positions: `x` and what it adds."""
        b, t, d = x.shape
        each = d // HEADS
        n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain
        q = self.q(n).view(b, t, HEADS, each).transpose(1, 2)
        k, v = self.kv(n).view(b, t, 2, HEADS // 2, each).transpose(1, 3).unbind(2)
        angle = torch.arange(t)[:, None] / 100.0 ** (torch.arange(each // 2) * 2 / each)
        cos, sin = torch.cos(angle).repeat(1, 2), torch.sin(angle).repeat(1, 2)
        q, k = (a * cos + _half_turned(a) * sin for a in (q, k))
        k, v = (a.repeat_interleave(2, dim=1) for a in (k, v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(b, t, d)
        return x + self.down(functional.silu(self.gate(x)) * self.up(x))


def _half_turned(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Vision(nn.Module):
    """A transformer over patches, with a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 5, WIDTH) / 10)
        self.blocks = nn.Sequential(Block(ChunkedAttention(causal=False)), Block(CausalAttention()))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        return self.head(self.blocks(x)[:, 0])


class Windows(nn.Module):
    """Attention within windows that are shifted by a roll, as in Swin, then a merge of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.attention = CausalAttention()
        self.merge, self.head = nn.Linear(4 * WIDTH, WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        x = functional.pad(x, (0, 0, 0, 2, 0, 2))
        x = torch.roll(x, (-1, -1), (1, 2))
        x = x[:, :h, :w]
        cut = x.reshape(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        y = self.attention(cut.reshape(-1, 16, c))
        y = y.reshape(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        corners = [y[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        return self.head(self.merge(torch.cat(corners, dim=-1)).mean((1, 2)))


class Mixed(nn.Module):
    """Convolutions, channel attention, a transformer over pixels, an upsampling decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3, stride=2, padding=1), nn.GroupNorm(4, WIDTH), nn.SiLU()
        )
        self.squeeze = nn.Linear(WIDTH, WIDTH)
        self.block = Block(CausalAttention())
        self.depth = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.up = nn.ConvTranspose2d(WIDTH, 8, 2, stride=2)
        self.head = nn.Conv2d(8, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x * torch.sigmoid(self.squeeze(x.mean((2, 3))))[:, :, None, None]
        b, c, h, w = x.shape
        y = self.block(x.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b, c, h, w)
        y = self.up(self.depth(x + y))
        return self.head(y).mean((2, 3))


class Convolutions(nn.Module):
    """A small network with a pool of every kind, a residual path and a padded crop."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect")
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.maximum, self.mean = nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, ceil_mode=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm(self.first(x)))
        x = self.maximum(x + functional.leaky_relu(self.second(x)))
        x = functional.pad(x[:, :, 1:], (1, 0, -1, 2))
        x = functional.interpolate(self.mean(x), scale_factor=2, mode="nearest")
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Unet(nn.Module):
    """Down and up again, with what was cut joined."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up, self.c = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = functional.relu(self.a(x))
        b = functional.relu(self.b(functional.max_pool2d(a, 2)))
        b = functional.interpolate(b, scale_factor=2, mode="bilinear")
        b = self.up(functional.max_pool2d(b, 2))
        x = functional.relu(self.c(torch.cat((a, b), 1)))
        return self.head(x)


class Recurrent(nn.Module):
    """Two directions of an LSTM, a GRU, attention over what they made."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, 8, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x, _ = self.gru(self.lstm(self.tokens(ids))[0])
        share = (x @ x[:, -1:].transpose(1, 2)).softmax(1)
        return self.head((x * share).sum(1))


class Series(nn.Module):
    """Causal dilated convolutions over time, gated, and statistics by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**i) for i in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            a, b = layer(functional.pad(x, (2**i, 0))).split(4, dim=1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-3)
        return self.head(torch.cumsum(x, -1)[..., ::2].amax(-1))


def _tokens() -> Tensor:
    return torch.randint(0, VOCABULARY, (2, LENGTH))


def _image() -> Tensor:
    return torch.randn(2, 3, 8, 8)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "gpt": (lambda: Language(CausalAttention), _tokens),
    "gpt_chunked": (lambda: Language(ChunkedAttention), _tokens),
    "gpt_rotary": (lambda: nn.Sequential(Rotary(), Rotary()), lambda: torch.randn(2, 6, WIDTH)),
    "vit": (Vision, _image),
    "windows": (Windows, _image),
    "mixed": (Mixed, _image),
    "cnn": (Convolutions, _image),
    "unet": (Unet, _image),
    "recurrent": (Recurrent, _tokens),
    "series": (Series, lambda: torch.randn(2, 4, 8)),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True),
        lambda: torch.randn(2, LENGTH, WIDTH),
    ),
    "multihead": (
        lambda: Selfish(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)),
        lambda: torch.randn(2, LENGTH, WIDTH),
    ),
}


class Selfish(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return y


def export(model: nn.Module, x: Tensor, path: Path, exporter: str, *, fixed: bool) -> None:
    """Write one file."""
    given: dict[str, Any] = {"input_names": ["x"], "output_names": ["y"]}
    if exporter == "script":
        given |= {"dynamo": False}
        if not fixed:
            given["dynamic_axes"] = {"x": {0: "batch"}}
    else:
        given |= {"dynamo": True, "external_data": False, "optimize": exporter == "dynamo"}
        if not fixed:
            given["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(model, (x,), path, **given)


def main() -> int:
    """Export what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed = 0
    for name, (make, draw) in MODELS.items():
        if arguments.names and name not in arguments.names:
            continue
        torch.manual_seed(0)
        model, x = make().eval(), draw()
        for exporter in ("dynamo", "raw", "script"):
            for fixed in (True, False):
                path = arguments.folder / f"{name}_{exporter}{'' if fixed else '_batch'}.onnx"
                try:
                    if not path.exists():
                        export(model, x, path, exporter, fixed=fixed)
                except Exception as error:  # noqa: BLE001 - said, and the next one
                    failed += 1
                    print(f"{path.stem}: not exported: {str(error).splitlines()[0][:120]}")
    made = len(list(arguments.folder.glob("*.onnx")))
    print(f"{made} files in {arguments.folder}, {failed} not exported")
    return 0


if __name__ == "__main__":
    sys.exit(main())
