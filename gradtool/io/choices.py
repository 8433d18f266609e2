"""Attributes with few values: flags, and the words of modes."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from gradtool.operators.recurrence import DIRECTIONS, GATES

_DIRECTIONS: Mapping[str, tuple[str, ...]] = {"direction": tuple(DIRECTIONS)}
_REDUCED: Mapping[str, tuple[str, ...]] = {"reduction": ("mean", "sum", "none")}
_SCATTERED: Mapping[str, tuple[str, ...]] = {"reduction": ("none", "add", "mul", "max", "min")}
_BLOCKS: Mapping[str, tuple[str, ...]] = {"mode": ("DCR", "CRD")}
WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(GATES, _DIRECTIONS),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _REDUCED),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _SCATTERED),
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": _BLOCKS,
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("linear", "bilinear", "nearest", "cubic", "bicubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    },
    "RoiAlign": {
        "mode": ("avg", "max"),
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    },
    "TensorScatter": {"mode": ("linear", "circular")},
    "TfIdfVectorizer": {"mode": ("TF", "IDF", "TFIDF")},
    "Upsample": {"mode": ("nearest", "linear")},
}
FLAGS = ("keepdims", "noop_with_empty_axes", "new_axis")


def broken(node: ir.Node) -> str | None:
    """The attribute of a node with an invalid value."""
    return _flag(node) or _word(node)


def _flag(node: ir.Node) -> str | None:
    """The message for a flag other than 0 or 1, on which readers differ."""
    for name in FLAGS:
        value = node.attributes.get_int(name, 0)
        if value not in (0, 1):
            return f"{name} {value} must be 0 or 1"
    return None


def _word(node: ir.Node) -> str | None:
    """The message for a text attribute outside of its few words."""
    for name, words in WORDS.get(node.op_type, {}).items():
        value = node.attributes.get_string(name, words[0])
        if value not in words:
            return f"{name} {value!r} must be one of {', '.join(words)}"
    return None
