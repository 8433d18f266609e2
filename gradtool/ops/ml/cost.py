"""Features and linear models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradtool.ops.costs import cost, each, free
from gradtool.ops.elementwise import cost_formulas as counts
from gradtool.ops.shared.element_counts import Shaped, size

DOMAIN = "ai.onnx.ml"

each({
    f"{DOMAIN}::Binarizer": 1,
    f"{DOMAIN}::Imputer": 1,
    f"{DOMAIN}::OneHotEncoder": 1,
    f"{DOMAIN}::Scaler": 2,  # (x - offset) · scale
})  # fmt: skip
free((
    f"{DOMAIN}::ArrayFeatureExtractor", f"{DOMAIN}::FeatureVectorizer", f"{DOMAIN}::LabelEncoder",
))  # fmt: skip

# Operations per score; softmax of what is not zero compares its magnitude.
TRANSFORMS = {
    "NONE": 0, "LOGISTIC": counts.of("Sigmoid"), "SOFTMAX": 5, "SOFTMAX_ZERO": 7, "PROBIT": 1,
}  # fmt: skip


def _rows(x: Shaped) -> int:
    return x.shape[0] if len(x.shape) > 1 else 1


@cost(f"{DOMAIN}::Normalizer")
def normalizer(x: Shaped, *, norm: str = "MAX") -> int:
    """Rows divided by their largest element, Σ |x| or √Σ x²."""
    return {"MAX": 2, "L1": 3, "L2": 3}[norm] * size(x) + (_rows(x) if norm == "L2" else 0)


def _affine(x: Shaped, count: int, intercepts: Any) -> int:
    """`x · wᵀ + b` of so many scores."""
    return 2 * size(x) * count + (_rows(x) * count if intercepts else 0)


@cost(f"{DOMAIN}::LinearRegressor")
def linear_regressor(
    x: Shaped, *, intercepts: Any = None, targets: int = 1, post_transform: str = "NONE"
) -> int:
    """`x · wᵀ + b`, transformed; of a single target only the probit is taken."""
    alone = targets == 1 and post_transform != "PROBIT"
    transformed = 0 if alone else TRANSFORMS[post_transform] * _rows(x) * targets
    return _affine(x, targets, intercepts) + transformed


@cost(f"{DOMAIN}::LinearClassifier")
def linear_classifier(
    x: Shaped, *, intercepts: Any = None, classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[str] = (), post_transform: str = "NONE",
) -> int:  # fmt: skip
    """`x · wᵀ + b`, the place of the largest, and the scores transformed; one score makes two."""
    labels = len(classlabels_ints or classlabels_strings)
    count = len(intercepts) if intercepts else labels
    opposite = _rows(x) if count < labels else 0
    if count < labels and "SOFTMAX" in post_transform:
        post_transform = "NONE"
    scores = _rows(x) * max(count, labels)
    compared = _rows(x) * count
    return _affine(x, count, intercepts) + compared + opposite + TRANSFORMS[post_transform] * scores


@cost(f"{DOMAIN}::SVMRegressor")
def svm_regressor(
    x: Shaped, *, n_supports: int = 0, kernel_type: str = "LINEAR", one_class: int = 0
) -> int:
    """`Σ c · k(x, v) + ρ` over the support vectors v, or its sign; `x · c + ρ` without vectors.

    k is x·v, `(γ x·v + o)ᵈ`, `tanh(γ x·v + o)` or `exp(-γ (x·x + v·v - 2 x·v))`.
    """
    rows = _rows(x)
    ends = rows * (1 + bool(one_class))
    if not n_supports:
        return 2 * size(x) + ends
    pairs = rows * n_supports
    squares = 2 * size(x) + 2 * n_supports * (size(x) // max(rows, 1))
    kernel = {"LINEAR": 0, "POLY": 3 * pairs, "SIGMOID": 3 * pairs, "RBF": 5 * pairs + squares}
    return 2 * size(x) * n_supports + kernel[kernel_type] + 2 * pairs + ends
