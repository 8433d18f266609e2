"""Quantisation and ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn.case import Case, Draw, Given, draws

ML = "ai.onnx.ml::"
SINGLE = ("float32",)


@draws("DequantizeLinear")
def dequantize(d: Draw) -> Case:
    shape = d.shape(low=1, least=1)
    kind = d.one(np.int8, np.uint8, np.int16, np.uint16)
    opset = 21 if np.dtype(kind).itemsize > 1 else d.one(19, 21, 23)
    info = np.iinfo(kind)
    x = d.rng.integers(info.min, info.max + 1, shape).astype(kind)
    given: dict[str, Any] = {}
    form = d.int(0, 2 if opset >= 21 and len(shape) > 1 else 1)
    scales: tuple[int, ...] = d.one((), (1,)) if opset >= 21 else ()
    if form == 1:
        given["axis"] = d.axis(len(shape))
        scales = (shape[given["axis"]],)
    elif form == 2:
        axis = d.axis(len(shape))
        block = d.int(1, shape[axis])
        given |= {"axis": axis, "block_size": block}
        parts = list(shape)
        parts[axis] = -(-shape[axis] // block)
        scales = tuple(parts)
    zero = d.fixed(d.rng.integers(0, 100, scales).astype(kind)) if d.flag() else None
    dtypes = ("float32", "float16") if info.bits == 8 else SINGLE
    return d.case(
        d.fixed(x), d.x(scales, 0.01, 0.1, 0.0), zero, opset=opset, dtypes=dtypes, steps=(1e-4,),
        rough=4.0, **given,
    )  # fmt: skip


@draws(f"{ML}ArrayFeatureExtractor")
def array_feature_extractor(d: Draw) -> Case:
    shape = d.shape(low=1, high=3, least=1)
    places = d.rng.integers(0, shape[-1], (1, d.int(1, 4)))
    return d.case(d.x(shape), d.fixed(places), dtypes=SINGLE)


@draws(f"{ML}FeatureVectorizer")
def feature_vectorizer(d: Draw) -> Case:
    rows, widths = d.int(1, 4), d.ints(d.int(1, 3), 1, 4)
    return d.case(
        *(d.x((rows, n)) for n in widths),
        inputdimensions=widths,
        dtypes=SINGLE,
        steps=(0.25,),
        rough=300.0,
    )


@draws(f"{ML}Imputer")
def imputer(d: Draw) -> Case:
    shape = (d.int(1, 4), d.int(1, 4))
    values = d.numbers((d.one(1, shape[1]),), -2, 2).astype(np.float32).tolist()
    given = {"imputed_value_floats": values, "replaced_value_float": 5.0}
    return d.case(d.x(shape), dtypes=SINGLE, **given)


@draws(f"{ML}Scaler")
def scaler(d: Draw) -> Case:
    shape = (d.int(1, 4), d.int(1, 4))
    n = d.one(1, shape[1])
    given = {k: d.numbers((n,), -2, 2).astype(np.float32).tolist() for k in ("scale", "offset")}
    return d.case(d.x(shape), dtypes=SINGLE, steps=(0.25,), rough=300.0, **given)


@draws(f"{ML}Normalizer")
def normalizer(d: Draw) -> Case:
    shape = d.one((d.int(1, 4), d.int(1, 4)), (d.int(1, 5),))
    x = d.x(shape, 0.4, 2.0, 0.0, apart=True)
    return d.case(x, dtypes=SINGLE, steps=(2e-2, 1e-2), rough=2000.0, norm=d.one("MAX", "L1", "L2"))


@draws(f"{ML}LinearRegressor", f"{ML}LinearClassifier")
def linear(d: Draw) -> Case:
    rows, width, targets = d.int(1, 4), d.int(1, 4), d.int(1, 3)
    kind = d.one("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    given: dict[str, Any] = {"post_transform": kind} if kind != "NONE" or d.flag() else {}
    classifier = d.op.endswith("Classifier")
    targets = max(2, targets) if classifier else targets
    given["coefficients"] = d.numbers((targets * width,), -1, 1).astype(np.float32).tolist()
    if d.flag() or classifier:
        given["intercepts"] = d.numbers((targets,), -1, 1).astype(np.float32).tolist()
    x = Given(d.numbers((rows, width), -2, 2, 0.1), moved=True)
    if classifier:
        given["classlabels_ints"] = list(range(targets))
        return d.case(x, outputs=2, dtypes=SINGLE, steps=(5e-2, 2e-2), rough=2000.0, **given)
    return d.case(x, targets=targets, dtypes=SINGLE, steps=(5e-2, 2e-2), rough=2000.0, **given)


@draws(f"{ML}SVMRegressor")
def svm(d: Draw) -> Case:
    rows, width, count = d.int(1, 4), d.int(1, 4), d.int(1, 3)
    given = {
        "kernel_type": d.one("LINEAR", "POLY", "RBF", "SIGMOID"), "kernel_params": [0.25, 0.5, 3.0],
        "support_vectors": d.numbers((count * width,), -1, 1).astype(np.float32).tolist(),
        "coefficients": d.numbers((count,), -1, 1, 0.4).astype(np.float32).tolist(),
        "n_supports": count, "rho": [-0.25],
    }  # fmt: skip
    return d.case(d.x((rows, width)), dtypes=SINGLE, steps=(2e-2,), rough=5000.0, **given)
