"""Normalisation."""

from __future__ import annotations

from drawn.case import Case, Draw, draws


@draws("LayerNormalization", "RMSNormalization")
def layer(d: Draw) -> Case:
    shape = list(d.shape(low=1, least=1))
    shape[-1] = max(shape[-1], 3)
    given = d.maybe(axis=d.axis(len(shape)), epsilon=d.one(1e-3, 1e-2))
    tail = shape[given.get("axis", -1) :]
    if d.flag(0.2):
        tail = [1 if d.flag(0.4) else n for n in tail]
    scale = d.w(tail)
    if d.flag(0.1):  # one for each row, or for some
        tail = [1 if d.flag(0.4) else n for n in shape]
        scale = d.w(tail[d.int(0, len(shape) - 1) :])
    if d.op == "RMSNormalization":
        return d.case(d.x(shape), scale, opset=(23, 24), rough=8.0, **given)
    bias = d.w(tail) if d.flag(0.6) else None
    return d.case(d.x(shape), scale, bias, opset=(18, 20, 22), rough=8.0, **given)


def _image(d: Draw, channels: int) -> tuple[int, ...]:
    return (d.int(1, 3), channels, *(d.size(1, 4) for _ in range(d.int(1, 3))))


@draws("InstanceNormalization")
def instance(d: Draw) -> Case:
    channels = d.int(1, 4)
    shape = _image(d, channels)
    given = d.maybe(epsilon=d.one(1e-3, 1e-2))
    return d.case(d.x(shape), d.w((channels,)), d.w((channels,)), rough=64.0, **given)


@draws("GroupNormalization")
def group(d: Draw) -> Case:
    groups, opset = d.int(1, 3), d.one(18, 21, 22)
    channels = groups * d.int(1, 3)
    own = (channels if opset >= 21 else groups,)
    given = d.maybe(epsilon=d.one(1e-3, 1e-2))
    return d.case(
        d.x(_image(d, channels)), d.w(own), d.w(own), num_groups=groups, opset=opset, rough=64.0,
        **given,
    )  # fmt: skip


@draws("BatchNormalization")
def batch(d: Draw) -> Case:
    channels = d.int(1, 4)
    shape = (d.int(2, 4), channels, *(d.size(1, 3) for _ in range(d.int(0, 3))))
    own = (channels,)
    given = d.maybe(epsilon=d.one(1e-3, 1e-2), momentum=d.one(0.5, 0.9))
    statistics = d.w(own), d.w(own), d.w(own), d.x(own, 0.3, 2.0, 0.0)
    if d.flag():
        return d.case(d.x(shape), *statistics, training_mode=1, outputs=3, rough=64.0, **given)
    return d.case(d.x(shape), *statistics, rough=8.0, **given)


@draws("LpNormalization")
def lp(d: Draw) -> Case:
    shape = d.shape(low=1)
    given = d.maybe(axis=d.axis(len(shape)), p=d.int(1, 2))
    return d.case(d.x(shape, gap=0.2), rough=4.0, **given)


@draws("MeanVarianceNormalization")
def mean_variance(d: Draw) -> Case:
    shape = d.shape(low=4, high=4, least=2)  # onnxruntime's body is of single precision
    dtypes = ("float32",)
    return d.case(
        d.x(shape),
        dtypes=dtypes,
        rough=64.0,
        **d.maybe(axes=sorted(a % 4 for a in d.axes(4, least=2))),
    )


@draws("LRN")
def lrn(d: Draw) -> Case:
    shape = (d.size(0, 2), d.size(0, 5), *(d.size(0, 3) for _ in range(d.int(0, 3))))
    given = d.maybe(alpha=d.one(0.5, 0.01), beta=d.one(0.5, 1.5), bias=d.one(2.0, 0.7))
    return d.case(d.x(shape), size=d.one(1, 3, 5, 7, 2, 4), **given)
