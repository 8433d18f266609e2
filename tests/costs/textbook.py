"""Operators as textbooks have them, computed on numbers that count what is done with them.

No formula of a count stands here: an operation is counted because it is executed.
"""

from __future__ import annotations

import itertools

import numpy as np


class Number:
    """A number of any value: every operation on it gives another one, and is counted."""

    done = 0

    def _one(self, *_):
        Number.done += 1
        return Number()

    def _compared(self, _):
        Number.done += 1
        return True

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _one
    __pow__ = __neg__ = __abs__ = exp = log = log1p = sqrt = tanh = erf = _one
    __lt__ = __le__ = __gt__ = __ge__ = _compared


def numbers(shape):
    """An array of different numbers."""
    return np.frompyfunc(lambda _: Number(), 1, 1)(np.zeros(shape)) if shape else Number()


def operations(function, *shapes, **options):
    """How many operations a function does on arrays of some shapes; None is no operand."""
    given = [None if shape is None else numbers(shape) for shape in shapes]
    before = Number.done
    function(*given, **options)
    return Number.done - before


def total(x, axis=-1, *, keepdims=False):
    """A sum that begins with nothing: an addition for each term."""
    return np.add.reduce(x, axis=axis, initial=Number(), keepdims=keepdims)


def greatest(x, axis=-1, *, keepdims=False):
    return np.maximum.reduce(x, axis=axis, initial=Number(), keepdims=keepdims)


def mean(x, axis, *, keepdims=True):
    return total(x, axis, keepdims=keepdims) / 1


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - greatest(x, keepdims=True))
    return e / total(e, keepdims=True)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


# -------------------------------------------------------------------------------- products


def matmul(a, b):
    return total(a[..., :, :, None] * b[..., None, :, :], -2)


def gemm(a, b, c=None, *, alpha=1, beta=1):
    y = matmul(a, b)
    y = y if alpha == 1 else alpha * y
    c = c if c is None or beta == 1 else beta * c
    return y if c is None else y + c


def windows(x, kernel):
    """`[..., positions, taps]` of the last axes, without padding."""
    lead, sizes = x.shape[: -len(kernel)], x.shape[-len(kernel) :]
    starts = itertools.product(*(range(n - k + 1) for n, k in zip(sizes, kernel, strict=True)))
    cut = [x[(..., *(slice(s, s + k) for s, k in zip(at, kernel, strict=True)))] for at in starts]
    return np.stack([c.reshape((*lead, -1)) for c in cut], -2)


def conv(x, w, bias=None, *, group=1):
    taps = windows(x, w.shape[2:])  # [N, C, positions, taps]
    parts = []
    for own, weights in zip(np.split(taps, group, 1), np.split(w, group), strict=True):
        flat = weights.reshape((*weights.shape[:2], -1))  # [M/G, C/G, taps]
        parts.append(total(own[:, None] * flat[None, :, :, None], (2, 4)))
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias[:, None]


def conv_transpose(x, w, bias=None, *, group=1):
    """Each element is multiplied by the taps of its channel, and added where they lie."""
    sizes = [n + k - 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True)]
    y = numbers((x.shape[0], w.shape[1] * group, *sizes))
    outputs = w.shape[1]
    for channel in range(x.shape[1]):
        first = channel // (x.shape[1] // group) * outputs
        for at in itertools.product(*map(range, x.shape[2:])):
            place = tuple(slice(a, a + k) for a, k in zip(at, w.shape[2:], strict=True))
            value = x[(slice(None), channel, *at)].reshape((-1, 1, *[1] * len(at)))
            y[(slice(None), slice(first, first + outputs), *place)] += value * w[channel]
    return y if bias is None else y + bias.reshape((-1, *[1] * len(sizes)))


def attention(q, k, v, mask=None):
    """`[batch, heads, rows, size]`; the sum of the weights is divided out at the end."""
    groups = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    scores = matmul(q * 1, np.swapaxes(k, -1, -2))
    scores = scores if mask is None else scores + mask
    weights = np.exp(scores - greatest(scores, keepdims=True))
    return matmul(weights, v) / total(weights, keepdims=True)


# --------------------------------------------------------------------------- normalisation


def reciprocal_root(variance):
    return 1 / np.sqrt(variance + 1)


def standard(x, axis):
    """`(x - mean) · rstd`."""
    centred = x - mean(x, axis)
    return centred * reciprocal_root(mean(centred * centred, axis))


def layer_norm(x, scale, bias=None):
    y = standard(x, -1) * scale
    return y if bias is None else y + bias


def rms_norm(x, scale):
    return x * reciprocal_root(mean(x * x, -1)) * scale


def by_channel(statistic, x):
    return statistic.reshape((1, -1, *[1] * (x.ndim - 2)))


def batch_norm(x, scale, bias, centre, variance):
    factor = by_channel(scale / np.sqrt(variance + 1), x)
    return (x - by_channel(centre, x)) * factor + by_channel(bias, x)


def batch_norm_training(x, scale, bias, centre, variance):
    """The running statistics as well, of statistics that are there."""
    y = standard(x, (0, *range(2, x.ndim))) * by_channel(scale, x) + by_channel(bias, x)
    return y, *(0.9 * old + 0.1 * numbers(old.shape) for old in (centre, variance))


def layer_norm_grad(x, scale, middle, rstd, dy):
    n = (x - middle) * rstd
    dn = dy * scale
    dx = rstd * (dn - mean(dn, -1) - n * mean(dn * n, -1))
    return dx, total(dy * n, (0, 1)), total(dy, (0, 1))


def lrn(x, *, size):
    squares = x * x
    near = np.stack([squares] * size, -1)
    return x / (1 + 1 * total(near)) ** 1


# ----------------------------------------------------------------------------------- pools


def max_pool(x, *, kernel_shape):
    return greatest(windows(x, kernel_shape))


def average_pool(x, *, kernel_shape):
    return total(windows(x, kernel_shape)) / 1


def lp_pool(x, *, kernel_shape, p):
    power = abs(x) ** p if p > 2 else x * x
    return total(windows(power, kernel_shape)) ** 1


# ------------------------------------------------------------------------------- recurrent


def _affine(x, h, w, r, b):
    """`W x + R h + (Wb + Rb)`; the two biases are added once."""
    y = matmul(x, np.swapaxes(w, -1, -2)) + matmul(h, np.swapaxes(r, -1, -2))
    return y if b is None else y + b


def _biases(b):
    return None if b is None else total(np.stack(np.split(b[0], 2)[:1]), 0)


def lstm(x, w, r, b=None):
    h = c = numbers((x.shape[1], r.shape[-1]))
    b = _biases(b)
    for row in x:
        i, o, f, g = np.split(_affine(row, h, w[0], r[0], b), 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)


def gru(x, w, r, b=None):
    h = numbers((x.shape[1], r.shape[-1]))
    size = h.shape[-1]
    b = _biases(b)
    for row in x:
        parts = np.split(w[0], [2 * size]), np.split(r[0], [2 * size])
        first, last = (None, None) if b is None else np.split(b, [2 * size])
        z, reset = np.split(sigmoid(_affine(row, h, parts[0][0], parts[1][0], first)), 2, -1)
        new = np.tanh(_affine(row, reset * h, parts[0][1], parts[1][1], last))
        h = (h - new) * z + new


def rnn(x, w, r, b=None):
    h = numbers((x.shape[1], r.shape[-1]))
    b = _biases(b)
    for row in x:
        h = np.tanh(_affine(row, h, w[0], r[0], b))


# ---------------------------------------------------------------------------------- losses


def cross_entropy(x, labels, *, reduction="mean"):
    z = x - greatest(x, keepdims=True)
    losses = np.log(total(np.exp(z))) - z[np.arange(len(z)), 0]
    count = total(labels) if reduction == "mean" else None  # the weights, all of which are 1
    return total(losses) if count is None else total(losses) / count
