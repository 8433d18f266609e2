"""Modules as model libraries wrote them before PyTorch had a second exporter.

Their masks and positions are chains of Shape, Expand, Where, ConstantOfShape and Range.
"""

from __future__ import annotations

import torch
from torch import nn

WIDTH, HEADS, WORDS, LONGEST = 16, 2, 30, 32


def heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(*x.size()[:-1], HEADS, x.size(-1) // HEADS).permute(0, 2, 1, 3)


def joined(x: torch.Tensor) -> torch.Tensor:
    x = x.permute(0, 2, 1, 3).contiguous()
    return x.view(*x.size()[:-2], WIDTH)


class Bert(nn.Module):
    """A mask that is expanded, buffers of positions that are cut."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.kinds = nn.Embedding(2, WIDTH)
        self.register_buffer("ids", torch.arange(LONGEST).expand(1, -1))
        self.register_buffer("kind", torch.zeros(1, LONGEST, dtype=torch.long))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, ids, mask):
        batch, length = ids.size()
        kinds = self.kind[:, :length].expand(batch, length)
        x = self.words(ids) + self.places(self.ids[:, :length]) + self.kinds(kinds)
        x = self.norm(x)
        wide = 1.0 - mask[:, None, None, :].expand(batch, 1, length, length).to(x.dtype)
        wide = wide.masked_fill(wide.bool(), -1e4)
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        a = (q @ k.transpose(-1, -2) / q.size(-1) ** 0.5 + wide).softmax(-1)
        return self.out(self.norm(x + joined(a @ v))[:, 0])


class T5(nn.Module):
    """A bias by distance, and a causal mask that is repeated."""

    def __init__(self):
        super().__init__()
        self.words, self.bias = nn.Embedding(WORDS, WIDTH), nn.Embedding(8, HEADS)
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WORDS)

    @staticmethod
    def bucket(distance):
        far = (distance > 0).to(torch.long) * 4
        distance = distance.abs()
        large = 2 + (torch.log(distance.float() / 2 + 1e-6)).to(torch.long)
        return far + torch.where(
            distance < 2, distance, torch.min(large, torch.full_like(large, 3))
        )

    def forward(self, ids, mask):
        batch, length = ids.shape
        x = self.words(ids)
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        place = torch.arange(length)
        bias = self.bias(self.bucket(place[None, :] - place[:, None])).permute(2, 0, 1)[None]
        causal = place[None, None, :].repeat(batch, length, 1) <= place[None, :, None]
        wide = causal.to(mask.dtype)[:, None, :, :] * mask[:, None, None, :]
        wide = (1.0 - wide.to(x.dtype)) * -1e4
        a = (q @ k.transpose(3, 2) + bias + wide).softmax(-1)
        return self.out(x + joined(a @ v))


class Gpt(nn.Module):
    """A cache that is joined, a table of a mask that is cut by its length."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WORDS)
        table = torch.ones(LONGEST, LONGEST, dtype=torch.uint8).tril().bool()
        self.register_buffer("table", table[None, None])

    def forward(self, ids, past):
        length, before = ids.size(-1), past.size(-2)
        places = torch.arange(before, length + before).unsqueeze(0).view(-1, length)
        x = self.words(ids) + self.places(places)
        q, k, v = map(heads, self.qkv(x).split(x.size(-1), dim=2))
        k, v = torch.cat([past, k], -2), torch.cat([past, v], -2)
        w = q @ k.transpose(-1, -2) / v.size(-1) ** 0.5
        rows, columns = w.size(-2), w.size(-1)
        seen = self.table[:, :, columns - rows : columns, :columns]
        w = torch.where(seen, w, torch.tensor(-1e4, dtype=w.dtype))
        return self.out(x + joined(w.softmax(-1) @ v))


class Bart(nn.Module):
    """A causal mask that is filled, and expanded beside one of padding."""

    def __init__(self):
        super().__init__()
        self.words, self.k = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, ids, mask):
        batch, length = ids.size()
        x = self.words(ids)
        wide = torch.full((length, length), -1e4)
        place = torch.arange(wide.size(-1))
        wide.masked_fill_(place < (place + 1).view(wide.size(-1), 1), 0)
        wide = wide[None, None, :, :].expand(batch, 1, length, length)
        pads = 1.0 - mask[:, None, None, :].expand(batch, 1, length, length).to(x.dtype)
        wide = wide + pads.masked_fill(pads.bool(), -1e4)
        w = (x @ self.k(x).transpose(1, 2)).unsqueeze(1) + wide
        w = torch.max(w, torch.tensor(-1e8)).view(batch, length, length).softmax(-1)
        return self.out(torch.bmm(w, x))


class Vit(nn.Module):
    """A token that is expanded to a batch."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places, self.out = nn.Parameter(torch.randn(1, 5, WIDTH)), nn.Linear(WIDTH, 3)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat((self.token.expand(x.shape[0], -1, -1), y), 1)
        return self.out((y + self.places)[:, 0])


class Squeezed(nn.Module):
    """An axis of size 1, which the exporter asks for with an If."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv1d(2, 3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.out(self.conv(x).mean(-1, keepdim=True).squeeze(-1))


def _words(batch, length):
    return torch.randint(0, WORDS, (batch, length))


def _mask(batch, length):
    return torch.tensor([[1] * (length - i % 2) + [0] * (i % 2) for i in range(batch)])


def _masked(batch, length):
    return _words(batch, length), _mask(batch, length)


_OPEN = {0: "batch", 1: "length"}
# Module, its example of a batch and a length, and the axes that are open by input.
CASES = {
    "bert": (Bert, _masked, {"ids": _OPEN, "mask": _OPEN}),
    "t5": (T5, _masked, {"ids": _OPEN, "mask": _OPEN}),
    "bart": (Bart, _masked, {"ids": _OPEN, "mask": _OPEN}),
    "gpt": (
        Gpt,
        lambda b, n: (_words(b, n), torch.randn(b, HEADS, n + 1, WIDTH // HEADS)),
        {"ids": _OPEN, "past": {0: "batch", 2: "past"}},
    ),
    "vit": (Vit, lambda b, _n: (torch.randn(b, 3, 8, 8),), {"x": {0: "batch"}}),
    "squeezed": (Squeezed, lambda b, n: (torch.randn(b, 2, n + 4),), {"x": {0: "batch", 2: "n"}}),
}
