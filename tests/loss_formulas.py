"""Losses as PyTorch has them: `f(torch, y, labels or a second output, **settings)`."""

from __future__ import annotations

C = 4  # classes


def by_class(y, t):
    return y.movedim(-1, 1) if y.ndim > 2 else y, t


def focal(torch, y, t, ignore=-100, weight=None, gamma=2.0):
    y, t = by_class(y, t)
    ce = torch.nn.functional.cross_entropy(y, t, reduction="none", ignore_index=ignore)
    counts = t != ignore
    w = torch.ones_like(ce) if weight is None else weight[torch.where(counts, t, 0)]
    return (w * (1 - torch.exp(-ce)) ** gamma * ce)[counts].sum() / counts.sum()


def focal_logits(torch, y, t, gamma=2.0, alpha=0.25):
    p = torch.sigmoid(y)
    ce = torch.nn.functional.binary_cross_entropy_with_logits(y, t, reduction="none")
    apart = 1 - (p * t + (1 - p) * (1 - t))
    return ((alpha * t + (1 - alpha) * (1 - t)) * ce * apart**gamma).mean()


def dice(torch, y, t, ignore=-100, smooth=1.0):
    y, t = by_class(y, t)
    counts = (t != ignore).double().unsqueeze(1)
    own = torch.nn.functional.one_hot(torch.where(t == ignore, 0, t), C).movedim(-1, 1)
    p, t = torch.softmax(y, 1) * counts, own * counts
    axes = tuple(range(2, y.ndim))
    sums = [v.sum(axes) if axes else v for v in (p * t, p, t)]
    return (1 - (2 * sums[0] + smooth) / (sums[1] + sums[2] + smooth)).mean()


def dice_logits(torch, y, t, smooth=1.0):
    p, axes = torch.sigmoid(y), tuple(range(1, y.ndim))
    both, above, below = (v.sum(axes) for v in (p * t, p, t))
    return (1 - (2 * both + smooth) / (above + below + smooth)).mean()


def triplet(torch, y, t, margin=0.3):
    apart = torch.cdist(y, y)
    same = t[:, None] == t[None, :]
    far = torch.where(same, apart, torch.zeros_like(apart)).max(1).values
    near = torch.where(same, torch.full_like(apart, torch.inf), apart).min(1).values
    return torch.relu(far - near + margin).mean()


def contrastive(torch, a, b, T=0.07):
    functional = torch.nn.functional
    scores = functional.normalize(a) @ functional.normalize(b).T / T
    own = torch.arange(len(a))
    return (functional.cross_entropy(scores, own) + functional.cross_entropy(scores.T, own)) / 2


def distill(torch, student, teacher, T=2.0):
    p, q = (torch.log_softmax(v.reshape(-1, C) / T, 1) for v in (student, teacher.detach()))
    return torch.nn.functional.kl_div(p, q, reduction="batchmean", log_target=True) * T * T


def bce_logits(torch, y, t, ignore=None, weight=None, smoothing=0.0):
    counts = torch.ones_like(t) if ignore is None else (t != ignore).double()
    t = t * (1 - smoothing) + smoothing / 2
    ce = torch.nn.functional.binary_cross_entropy_with_logits(y, t, weight, reduction="none")
    return (ce * counts).sum() / counts.sum()


THEIRS = {
    "focal": focal, "focal-logits": focal_logits, "dice": dice, "dice-logits": dice_logits,
    "triplet": triplet, "contrastive": contrastive, "distill": distill, "bce-logits": bce_logits,
}  # fmt: skip
