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
case(
    f"{DOMAIN}TreeEnsemble", fixed(5, 2), **plain, note="one tree",
    aggregate_function=1, post_transform=0, n_targets=2, tree_roots=[0],
    nodes_modes=np.zeros(3, np.uint8), nodes_splits=np.float32([1.5, -0.5, 0.25]),
    nodes_featureids=[0, 1, 0], nodes_truenodeids=[1, 0, 1], nodes_falsenodeids=[2, 2, 3],
    nodes_trueleafs=[0, 1, 1], nodes_falseleafs=[0, 1, 1],
    leaf_targetids=[0, 1, 0, 1], leaf_weights=np.float32([5.0, 12.0, -12.0, 7.0]),
)  # fmt: skip
