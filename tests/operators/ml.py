"""Cases of the ml family."""

from __future__ import annotations

import numpy as np
from cases import case, fixed, floats, integers

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
case(f"{DOMAIN}Scaler", (3, 4), scale=[0.5, 2.0, -1.0, 3.0], offset=[1.0, 0.0, 0.5, -2.0])
case(f"{DOMAIN}Scaler", (2, 3, 2), scale=[0.5], offset=[1.5])
case(f"{DOMAIN}Scaler", integers(3, 1, 7), **plain, scale=[0.5], offset=[1.5])
for norm in ("MAX", "L1", "L2"):
    apart = floats(3, 4, distinct=True, low=-1.0, gap=0.1)
    case(f"{DOMAIN}Normalizer", apart, norm=norm)
    case(f"{DOMAIN}Normalizer", floats(5, distinct=True, low=0.5), norm=norm)
    case(f"{DOMAIN}Normalizer", np.float32([[-1, 0], [0, 0]]), **plain, norm=norm)
    case(f"{DOMAIN}Normalizer", integers([[3, -4], [0, 0]]), **plain, norm=norm, note="int")
case(f"{DOMAIN}Imputer", (3, 2), imputed_value_floats=[1.0, 2.0], replaced_value_float=5.0)
missing = {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")}
case(f"{DOMAIN}Imputer", np.float32([[1, np.nan], [np.nan, 2]]), **plain, **missing)
case(f"{DOMAIN}Imputer", (4,), **missing)
case(
    f"{DOMAIN}Imputer", integers([[1, 2], [2, 3]]), **plain,
    imputed_value_int64s=[8, 9], replaced_value_int64=2,
)  # fmt: skip
case(f"{DOMAIN}FeatureVectorizer", (3, 2), (3, 4), inputdimensions=[2, 4])
case(f"{DOMAIN}FeatureVectorizer", (3, 2), (3, 4), inputdimensions=[3, 2], note="cut and filled")
case(f"{DOMAIN}FeatureVectorizer", (3,), (2,), inputdimensions=[3, 2])
case(f"{DOMAIN}OneHotEncoder", integers([[1, 5], [3, 4]]), **plain, cats_int64s=[1, 3, 5])
case(f"{DOMAIN}OneHotEncoder", integers(1, 3), **plain, cats_int64s=[1, 3, 5], zeros=0)
case(f"{DOMAIN}OneHotEncoder", np.float32([1.5, 3, 2]), **plain, cats_int64s=[1, 3, 5])
case(f"{DOMAIN}OneHotEncoder", names, **plain, cats_strings=["b", "a"])

four = [0.125, 0.25, -0.5, 0.375]
twelve = [0.25, -0.5, 0.125, 0.75, -0.25, 0.5, 1.0, -0.75, 0.5, 0.25, -1.0, 0.125]
near = {"low": -0.05, "high": 0.05, "gap": 0.0}
for kind in ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"):
    # The probit function of onnxruntime is an approximation to three digits.
    shared = {"post_transform": kind, "ort": kind != "PROBIT"}
    x = floats(5, 4, **near) if kind == "PROBIT" else floats(5, 4)
    case(
        f"{DOMAIN}LinearRegressor", x, **shared, coefficients=twelve, targets=3,
        intercepts=[0.5, 0.4375, 0.625],
    )  # fmt: skip
    case(f"{DOMAIN}LinearRegressor", x, **shared, coefficients=four, intercepts=[0.5])
    case(
        f"{DOMAIN}LinearClassifier", x, **shared, coefficients=twelve, outputs=2,
        intercepts=[0.5, 0.4375, 0.625], classlabels_ints=[7, 8, 9],
    )  # fmt: skip
    case(
        f"{DOMAIN}LinearClassifier", x, **shared, coefficients=four, outputs=2, intercepts=[0.5],
        classlabels_strings=["no", "yes"], multi_class=1,
    )  # fmt: skip
case(f"{DOMAIN}LinearRegressor", (4,), coefficients=four)
# onnxruntime takes single precision only.
case(f"{DOMAIN}LinearRegressor", integers([[1, 2, 3, 4]]), **plain, ort=False, coefficients=four)
for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
    vectors = {
        "kernel_type": kind, "kernel_params": [0.25, 0.5, 3.0], "support_vectors": twelve,
        "coefficients": [0.5, -1.0, 0.75], "n_supports": 3, "rho": [-0.25],
    }  # fmt: skip
    case(f"{DOMAIN}SVMRegressor", (5, 4), **vectors)
    case(f"{DOMAIN}SVMRegressor", fixed(5, 4), **plain, **vectors, one_class=1)
linear = {"coefficients": four, "rho": [0.5], "n_supports": 0, "kernel_params": [0.0, 0.0, 0.0]}
case(f"{DOMAIN}SVMRegressor", (5, 4), **linear)
