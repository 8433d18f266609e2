"""The operators whose operations shapes do not tell, and why."""

from __future__ import annotations

from types import MappingProxyType

_REGIONS = "the regions say how many elements a bin has"

UNKNOWN = MappingProxyType({
    "ImageDecoder": "what decoding takes depends on the encoded image",
    "MaxRoiPool": _REGIONS,
    "MelWeightMatrix": "its numbers say how many entries differ from zero",
    "NonMaxSuppression": "how many boxes are compared depends on the scores",
    "SequenceMap": "the length of a sequence is not known",
    "TfIdfVectorizer": "how many n-grams are found depends on the data",
    "Unique": "how many elements remain depends on the data",
    "ai.gradtool::DetGrad": "singular values are found by iteration",
    "ai.gradtool::MaxRoiPoolGrad": _REGIONS,
    "ai.onnx.ml::TreeEnsemble": "rows take paths of different lengths",
})  # fmt: skip
