"""Cases of the ml family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, integers

DOMAIN = "ai.onnx.ml::"
plain = {"gradient": False}
case(f"{DOMAIN}ArrayFeatureExtractor", (3, 4), integers([[0, 2, 0]]))
case(f"{DOMAIN}ArrayFeatureExtractor", (2, 3, 4), integers([1, 1]))
case(f"{DOMAIN}Binarizer", fixed(3, 4), **plain, threshold=0.3)
names = np.array(["a", "b", "?"], dtype=object)
case(
    f"{DOMAIN}LabelEncoder", names, **plain, keys_strings=["a", "b"], values_int64s=[4, 5],
    default_int64=9,
)  # fmt: skip
case(
    f"{DOMAIN}LabelEncoder", integers(3, 1, 7), **plain, keys_int64s=[1, 3],
    values_strings=["one", "three"],
)  # fmt: skip
case(
    f"{DOMAIN}LabelEncoder", np.float32([np.nan, 2]), **plain, keys_floats=[float("nan"), 2.5],
    values_floats=[7.0, 8.0], default_float=0.5,
)  # fmt: skip
