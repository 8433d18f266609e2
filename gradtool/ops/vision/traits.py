"""Traits of the operators of the vision family."""

from gradtool.ops.traits import traits

traits("AffineGrid", residuals="size")
traits("ai.gradtool::MaxRoiPoolGrad", uncounted="the regions say how many elements a bin has")
traits("GridSample", residuals="grid, X")
traits(
    "ImageDecoder", uncounted="what decoding takes depends on the encoded image", onnxruntime="no"
)
traits("MaxRoiPool", residuals="rois, X", uncounted="the regions say how many elements a bin has")
traits("NonMaxSuppression", uncounted="how many boxes are compared depends on the scores")
traits("RoiAlign", residuals="batch_indices, rois, X")
