"""Cases of the norm family."""

from __future__ import annotations

from cases import case, positive

case("LayerNormalization", (4, 6), (6,), (6,))
case("LayerNormalization", (2, 3, 6), (6,), epsilon=1e-3)
# onnxruntime crashes on an empty last input
case("LayerNormalization", (2, 3, 6), (6,), None, epsilon=1e-3, ort=False)
case("LayerNormalization", (2, 3, 6), (3, 6), (3, 6), axis=1)
case("LayerNormalization", (2, 3, 4), (2, 3, 4), (2, 3, 4), axis=0)
# the statistics are float32, so that differences in float64 say nothing
case("LayerNormalization", (2, 3, 6), (6,), (6,), axis=2, outputs=3, gradient=False)
case("LayerNormalization", (7,), (7,), (7,))
# onnxruntime wants as many scales as normalised elements
case("LayerNormalization", (2, 3, 6), (1, 6), (6,), axis=1, ort=False)
for _rows in ((3, 6), (2, 3, 6), (2, 1, 6), (1, 3, 1), (1, 1, 6)):  # another for each row
    case("LayerNormalization", (2, 3, 6), _rows, (6,))
    case("LayerNormalization", (2, 3, 6), (6,), _rows, epsilon=1e-3)
    case("RMSNormalization", (2, 3, 6), _rows, opset=23)
case("RMSNormalization", (4, 6), (6,), opset=23)
case("RMSNormalization", (2, 3, 6), (3, 6), opset=23, axis=1, epsilon=1e-3)
case("RMSNormalization", (2, 3, 6), (1,), opset=23, ort=False)

for shape in ((3, 4), (2, 4, 3), (2, 3, 4, 5)):
    channels = (shape[1],)
    statistics = (channels, channels, channels, positive(*channels))
    case("BatchNormalization", shape, *statistics)
    case("BatchNormalization", shape, *statistics, training_mode=1, outputs=3, epsilon=1e-2)
case("BatchNormalization", (2, 3, 4), (3,), (3,), (3,), positive(3), training_mode=1,
     momentum=0.6, outputs=3)  # fmt: skip
case("BatchNormalization", (2, 3, 4), (3,), (3,), (3,), positive(3), epsilon=1e-2)
case("ai.gradtool::BatchNormalizationTraining", (2, 3, 4, 2), (3,), (3,), (3,), positive(3),
     outputs=5, epsilon=1e-3, momentum=0.7)  # fmt: skip
case("ai.gradtool::BatchNormalizationTraining", (4, 3), (3,), (3,), (3,), positive(3),
     outputs=5, epsilon=1e-3, momentum=0.7)  # fmt: skip

case("InstanceNormalization", (2, 3, 4, 5), (3,), (3,))
case("InstanceNormalization", (2, 3, 7), (3,), (3,), epsilon=1e-3)
case("GroupNormalization", (2, 6, 4, 3), (6,), (6,), opset=21, num_groups=2)
case("GroupNormalization", (2, 6, 4), (6,), (6,), opset=21, num_groups=6, epsilon=1e-3)
# the checker refuses the form of opset 18: it is deprecated
case("GroupNormalization", (2, 6, 4, 3), (3,), (3,), opset=18, num_groups=3, ort=False)
case("GroupNormalization", (2, 4, 3), (1,), (1,), opset=18, num_groups=1, ort=False)

for p in (1, 2):
    case("LpNormalization", (3, 4), p=p)
    case("LpNormalization", (2, 3, 4), p=p, axis=1)
    case("LpNormalization", (2, 3, 4), p=p, axis=0)
case("MeanVarianceNormalization", (2, 3, 4, 5), axes=[0, 2, 3])
# the checker can't expand the function without axes; onnxruntime knows those of images only
case("MeanVarianceNormalization", (2, 3, 4, 5), ort=False)
case("MeanVarianceNormalization", (2, 3, 4), axes=[1, 2], ort=False)
case("LRN", (2, 6, 3, 4), size=3, alpha=0.5)
case("LRN", (2, 6, 3, 4), size=3, alpha=0.3, beta=0.5, bias=2.0)
# onnxruntime refuses even sizes
case("LRN", (2, 6, 3, 4), size=4, alpha=0.3, beta=0.5, bias=2.0, ort=False)
case("LRN", (2, 5, 3, 4), size=7)
