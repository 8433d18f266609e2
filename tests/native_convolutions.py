"""Convolutions in float64, tap by tap: what native ones are compared with.  Channels last."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


class Convolution:
    """Of x `[N, H, W, C]` and w `[M, C/G, a, b]`; `pads` are top, left, bottom, right."""

    def __init__(self, x_shape, w_shape, strides=(1, 1), dilations=(1, 1), pads=(0,) * 4, group=1):
        self.x_shape, self.w_shape, self.group = x_shape, w_shape, group
        self.strides, self.dilations, self.pads = strides, dilations, pads
        out = (
            (x_shape[1 + k] + pads[k] + pads[2 + k] - dilations[k] * (w_shape[2 + k] - 1) - 1)
            // strides[k] + 1
            for k in range(2)
        )  # fmt: skip
        self.y_shape = (x_shape[0], *out, w_shape[0])

    def _taps(self) -> Iterator[tuple[int, int, tuple[slice, ...]]]:
        """Each tap, and what it reads of the padded x."""
        for a in range(self.w_shape[2]):
            for b in range(self.w_shape[3]):
                rows, columns = (
                    slice(at * d, at * d + s * (size - 1) + 1, s)
                    for at, d, s, size in zip(
                        (a, b), self.dilations, self.strides, self.y_shape[1:3], strict=True
                    )
                )
                yield a, b, (slice(None), rows, columns)

    def _padded(self, x):
        top, left, bottom, right = self.pads
        x = np.pad(x.astype(np.float64), ((0, 0), (top, bottom), (left, right), (0, 0)))
        return x.reshape(*x.shape[:3], self.group, -1)

    def y(self, x, w, bias=None):
        x = self._padded(x)
        w = w.astype(np.float64).reshape(self.group, -1, *w.shape[1:])
        y = sum(np.einsum("nhwgc,gmc->nhwgm", x[at], w[..., a, b]) for a, b, at in self._taps())
        return y.reshape(self.y_shape) + (0 if bias is None else bias)

    def dx(self, dy, w):
        dx = self._padded(np.zeros(self.x_shape))
        w = w.astype(np.float64).reshape(self.group, -1, *w.shape[1:])
        dy = dy.astype(np.float64).reshape(*dy.shape[:3], self.group, -1)
        for a, b, at in self._taps():
            dx[at] += np.einsum("nhwgm,gmc->nhwgc", dy, w[..., a, b])
        top, left, _, _ = self.pads
        n, height, width, channels = self.x_shape
        return dx[:, top : top + height, left : left + width].reshape(n, height, width, channels)

    def dw(self, x, dy):
        x = self._padded(x)
        dy = dy.astype(np.float64).reshape(*dy.shape[:3], self.group, -1)
        dw = np.empty((self.group, dy.shape[-1], x.shape[-1], *self.w_shape[2:]))
        for a, b, at in self._taps():
            dw[..., a, b] = np.einsum("nhwgm,nhwgc->gmc", dy, x[at])
        return dw.reshape(self.w_shape)
