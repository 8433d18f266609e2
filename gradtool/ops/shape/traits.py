"""Traits of the operators of the shape family."""

from gradtool.ops.traits import traits

traits("CenterCropPad", residuals="", partial=True, onnxruntime="body")
traits("Col2Im", residuals="block_shape")
traits("Concat", recompute="never", residuals="")
traits("Constant", recompute="never")
traits("DepthToSpace Range SpaceToDepth Split Tile", residuals="")
traits("Expand Flatten Reshape Transpose", recompute="cheap", residuals="")
traits("Pad", residuals="axes, pads")
traits("Resize", residuals="roi, scales, sizes")
traits("ReverseSequence", residuals="sequence_lens")
traits("Shape Size", recompute="never", unread=0)
traits("Slice", residuals="axes, ends, starts, steps", partial=True)
traits("Squeeze Unsqueeze", recompute="cheap", residuals="axes")
traits("TensorScatter", residuals="write_indices")
traits("Trilu", residuals="k")
