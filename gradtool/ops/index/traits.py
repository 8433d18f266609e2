"""Traits of the operators of the index family."""

from gradtool.ops.traits import traits

traits("Compress", residuals="condition")
traits("Gather", recompute="never", residuals="indices", partial=True)
traits("GatherElements GatherND", residuals="indices", partial=True)
traits("OneHot", residuals="depth, indices")
traits("ScatterElements ScatterND", residuals="data, indices, output, updates")
traits("TopK", residuals="Indices")
traits("Unique", residuals="indices", uncounted="how many elements remain depends on the data")
