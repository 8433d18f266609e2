"""Models of one operator in the forms that it had in opsets 7 to 17, as ONNX text.

`(operator, opsets, body)`: the form is one that all these opsets have.
"""

from __future__ import annotations

CONV = "float[2, 4, 7, 8] x"
PAIR = "float[2, 3, 4] x"
NORM = "float[3, 4, 5] x, float[4] s, float[4] b, float[4] m, float[4] v"

MODELS: list[tuple[str, tuple[int, ...], str]] = [
    # Operators that took no account of their inputs' shapes, or other ones.
    ("Softmax", (7, 11, 12, 13), f"({PAIR}) => (y) {{ y = Softmax (x) }}"),
    ("Softmax axis=0", (7, 11, 13), f"({PAIR}) => (y) {{ y = Softmax <axis = 0> (x) }}"),
    ("Softmax axis=1", (7, 11, 13), f"({PAIR}) => (y) {{ y = Softmax <axis = 1> (x) }}"),
    ("Softmax axis=2", (7, 11, 13), f"({PAIR}) => (y) {{ y = Softmax <axis = 2> (x) }}"),
    ("Softmax axis=-1", (11, 13), f"({PAIR}) => (y) {{ y = Softmax <axis = -1> (x) }}"),
    ("Softmax axis=-2", (11, 12), f"({PAIR}) => (y) {{ y = Softmax <axis = -2> (x) }}"),
    ("Softmax open", (7, 11, 12), "(float[a, 3, b] x) => (y) { y = Softmax <axis = 1> (x) }"),
    ("LogSoftmax", (7, 11, 12, 13), f"({PAIR}) => (y) {{ y = LogSoftmax (x) }}"),
    ("LogSoftmax axis=0", (7, 12), f"({PAIR}) => (y) {{ y = LogSoftmax <axis = 0> (x) }}"),
    ("LogSoftmax axis=2", (7, 12), f"({PAIR}) => (y) {{ y = LogSoftmax <axis = 2> (x) }}"),
    ("Hardmax", (7, 11, 12, 13), f"({PAIR}) => (y) {{ y = Hardmax (x) }}"),
    ("Hardmax axis=0", (7, 12), f"({PAIR}) => (y) {{ y = Hardmax <axis = 0> (x) }}"),
    ("Hardmax axis=2", (7, 12), f"({PAIR}) => (y) {{ y = Hardmax <axis = 2> (x) }}"),
    # Normalisation and dropout.
    ("BatchNormalization", (7, 9, 14, 15),
     f"({NORM}) => (y) {{ y = BatchNormalization <epsilon = 0.01> (x, s, b, m, v) }}"),
    ("BatchNormalization spatial=1", (7, 8),
     f"({NORM}) => (y) {{ y = BatchNormalization <spatial = 1> (x, s, b, m, v) }}"),
    ("BatchNormalization training", (14, 15),
     f"({NORM}) => (y, p, q) {{ y, p, q = BatchNormalization <training_mode = 1> "
     "(x, s, b, m, v) }"),
    ("InstanceNormalization", (7, 13),
     "(float[3, 4, 5] x, float[4] s, float[4] b) => (y) "
     "{ y = InstanceNormalization (x, s, b) }"),
    ("MeanVarianceNormalization", (9, 13),
     f"({CONV}) => (y) {{ y = MeanVarianceNormalization (x) }}"),
    ("LRN", (7, 13), f"({CONV}) => (y) {{ y = LRN <size = 3> (x) }}"),
    ("Dropout", (7, 10), f"({PAIR}) => (y) {{ y = Dropout <ratio = 0.3> (x) }}"),
    ("Dropout default", (7, 10, 12, 13), f"({PAIR}) => (y) {{ y = Dropout (x) }}"),
    ("Dropout mask", (10, 12, 13), f"({PAIR}) => (y, m) {{ y, m = Dropout (x) }}"),
    ("Dropout mask read", (10,),
     f"({PAIR}) => (y, z) {{ y, m = Dropout (x) z = Where (m, y, x) }}"),
    # Sizes and axes that became inputs.
    ("Upsample attribute", (7, 8),
     f"({CONV}) => (y) {{ y = Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (x) }}"),
    ("Upsample linear attribute", (7, 8),
     f"({CONV}) => (y) {{ y = Upsample <mode = \"linear\", scales = [1.0, 1.0, 2.0, 2.0]> (x) }}"),
    ("Upsample", (9,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 2, 3}}> {{ y = Upsample (x, s) }}"),
    ("Upsample linear", (9,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 2, 2}}> {{ y = Upsample <mode = \"linear\"> (x, s) }}"),
    ("Upsample constant", (9,),
     f"({CONV}) => (y) {{ s = Constant <value = float[4] {{1, 1, 2, 2}}> () y = Upsample (x, s) }}"),
    ("Resize 10", (10,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 2, 3}}> {{ y = Resize (x, s) }}"),
    ("Resize 10 down", (10,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 0.6, 0.4}}> {{ y = Resize (x, s) }}"),
    ("Resize 10 linear", (10,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 2, 2}}> {{ y = Resize <mode = \"linear\"> (x, s) }}"),
    ("Resize 10 linear down", (10,),
     f"({CONV}) => (y) <float[4] s = {{1, 1, 0.6, 0.6}}> {{ y = Resize <mode = \"linear\"> (x, s) }}"),
    ("Resize", (11, 13, 17),
     f"({CONV}) => (y) <float[0] r = {{}}, float[4] s = {{1, 1, 2, 2}}> "
     "{ y = Resize <mode = \"linear\", coordinate_transformation_mode = \"align_corners\"> (x, r, s) }"),
    ("Resize sizes", (11, 13),
     f"({CONV}) => (y) <float[0] r = {{}}, float[0] s = {{}}, int64[4] z = {{2, 4, 9, 5}}> "
     "{ y = Resize <mode = \"cubic\", nearest_mode = \"floor\"> (x, r, s, z) }"),
    ("Resize crop", (11, 13),
     f"({CONV}) => (y) <float[8] r = {{0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9}}, float[4] s = {{1, 1, 2, 2}}> "
     "{ y = Resize <mode = \"linear\", coordinate_transformation_mode = \"tf_crop_and_resize\", "
     "extrapolation_value = 3.0> (x, r, s) }"),
    ("Resize half pixel nn", (11, 12),
     f"({CONV}) => (y) <float[0] r = {{}}, float[4] s = {{1, 1, 2, 3}}> "
     "{ y = Resize <coordinate_transformation_mode = \"tf_half_pixel_for_nn\", "
     "nearest_mode = \"floor\"> (x, r, s) }"),
    ("Pad", (7, 10), f"({PAIR}) => (y) {{ y = Pad <pads = [0, 1, 2, 1, 0, 1], value = 1.5> (x) }}"),
    ("Pad reflect", (7, 10),
     f"({PAIR}) => (y) {{ y = Pad <mode = \"reflect\", pads = [0, 1, 2, 1, 0, 1]> (x) }}"),
    ("Pad negative", (7, 10), f"({PAIR}) => (y) {{ y = Pad <pads = [0, -1, 2, 0, 0, -1]> (x) }}"),
    ("Pad input", (11, 13),
     f"({PAIR}) => (y) <int64[6] p = {{0, 1, 2, 1, 0, 1}}, float c = {{1.5}}> {{ y = Pad (x, p, c) }}"),
    ("Clip", (7, 10), f"({PAIR}) => (y) {{ y = Clip <max = 0.5, min = -0.5> (x) }}"),
    ("Clip min", (7, 10), f"({PAIR}) => (y) {{ y = Clip <min = -0.5> (x) }}"),
    ("Clip max", (7, 10), f"({PAIR}) => (y) {{ y = Clip <max = 0.5> (x) }}"),
    ("Clip none", (7, 10), f"({PAIR}) => (y) {{ y = Clip (x) }}"),
    ("Clip input", (11, 12, 13),
     f"({PAIR}) => (y) <float hi = {{0.5}}> {{ y = Clip (x, , hi) }}"),
    ("Slice", (7, 9), f"({PAIR}) => (y) {{ y = Slice <starts = [0, 1], ends = [1, -1]> (x) }}"),
    ("Slice axes", (7, 9),
     f"({PAIR}) => (y) {{ y = Slice <axes = [2, 1], starts = [0, 1], ends = [1, 10000]> (x) }}"),
    ("Slice input", (10, 11, 13),
     f"({PAIR}) => (y) <int64[1] s = {{-1}}, int64[1] e = {{-100}}, int64[1] a = {{2}}, "
     "int64[1] t = {-2}> { y = Slice (x, s, e, a, t) }"),
    ("TopK", (7, 9), f"({PAIR}) => (y, i) {{ y, i = TopK <k = 2, axis = 2> (x) }}"),
    ("TopK default", (7, 9), f"({PAIR}) => (y, i) {{ y, i = TopK <k = 2> (x) }}"),
    ("TopK input", (10, 11),
     f"({PAIR}) => (y, i) <int64[1] k = {{2}}> {{ y, i = TopK <axis = 1> (x, k) }}"),
    ("Split", (7, 11), f"({PAIR}) => (y, z) {{ y, z = Split <axis = 1, split = [1, 2]> (x) }}"),
    ("Split even", (7, 11, 13), f"({PAIR}) => (y, z) {{ y, z = Split <axis = 2> (x) }}"),
    ("Split input", (13, 17),
     f"({PAIR}) => (y, z) <int64[2] s = {{1, 2}}> {{ y, z = Split <axis = 1> (x, s) }}"),
    ("Squeeze", (7, 11), "(float[1, 3, 1] x) => (y) { y = Squeeze <axes = [0, 2]> (x) }"),
    ("Squeeze all", (7, 11, 13), "(float[1, 3, 1] x) => (y) { y = Squeeze (x) }"),
    ("Unsqueeze", (7, 11), f"({PAIR}) => (y) {{ y = Unsqueeze <axes = [0, 3]> (x) }}"),
    ("ReduceSum", (7, 11), f"({PAIR}) => (y) {{ y = ReduceSum <axes = [0, 2], keepdims = 0> (x) }}"),
    ("ReduceSum all", (7, 11, 13), f"({PAIR}) => (y) {{ y = ReduceSum (x) }}"),
    *((op, (7, 11, 13, 17), f"({PAIR}) => (y) {{ y = {op} <axes = [1], keepdims = 0> (a) a = Abs (x) }}")
      for op in ()),
    *((f"{op} axes", (7, 11, 13, 17), f"({PAIR}) => (y) {{ a = Abs (x) y = {op} <axes = [1], keepdims = 0> (a) }}")
      for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                 "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare")),
    ("ArgMax", (7, 11, 13), f"({PAIR}) => (y) {{ y = ArgMax <axis = 1> (x) }}"),
    ("Tile", (7, 13), f"({PAIR}) => (y) <int64[3] r = {{1, 2, 3}}> {{ y = Tile (x, r) }}"),
    ("OneHot", (9, 11),
     "(int64[4] i, float[2] x) => (y) <int64 d = {5}> { y = OneHot (i, d, x) }"),
    ("Scatter", (9, 10),
     "(float[3, 3] x, float[2, 3] u) => (y) <int64[2, 3] i = {1, 0, 2, 0, 2, 1}> "
     "{ y = Scatter <axis = 0> (x, i, u) }"),
    ("Scatter 11", (11, 13, 15),
     "(float[3, 3] x, float[2, 3] u) => (y) <int64[2, 3] i = {1, 0, 2, 0, 2, 1}> "
     "{ y = ScatterElements <axis = 0> (x, i, u) }"),
    ("Gather", (7, 11), f"({PAIR}) => (y) <int64[2] i = {{1, 0}}> {{ y = Gather <axis = 1> (x, i) }}"),
    ("Cast", (7, 9, 13), f"({PAIR}) => (y) {{ i = Cast <to = 7> (x) y = Cast <to = 1> (i) }}"),
    # Windows.
    ("AveragePool", (7, 10, 11),
     f"({CONV}) => (y) {{ y = AveragePool <kernel_shape = [3, 3], pads = [1, 1, 1, 1], "
     "count_include_pad = 1, strides = [2, 2]> (x) }"),
    ("AveragePool SAME", (7, 11),
     f"({CONV}) => (y) {{ y = AveragePool <kernel_shape = [3, 3], auto_pad = \"SAME_UPPER\"> (x) }}"),
    ("MaxPool", (7, 8, 10, 12),
     f"({CONV}) => (y) {{ y = MaxPool <kernel_shape = [3, 2], strides = [2, 1]> (x) }}"),
    ("MaxPool indices", (8, 10, 11, 12),
     f"({CONV}) => (y, i) {{ y, i = MaxPool <kernel_shape = [3, 2]> (x) }}"),
    ("LpPool", (7, 11), f"({CONV}) => (y) {{ y = LpPool <kernel_shape = [3, 2]> (x) }}"),
    ("GlobalLpPool", (7,), f"({CONV}) => (y) {{ y = GlobalLpPool <p = 3> (x) }}"),
    ("Conv", (7, 11),
     f"({CONV}, float[4, 2, 3, 3] w) => (y) {{ y = Conv <group = 2, pads = [1, 1, 0, 0]> (x, w) }}"),
    ("ConvTranspose", (7, 11),
     f"({CONV}, float[4, 2, 3, 3] w) => (y) "
     "{ y = ConvTranspose <strides = [2, 2], output_padding = [1, 1]> (x, w) }"),
    ("ConvTranspose output_shape", (7, 11),
     f"({CONV}, float[4, 2, 3, 3] w) => (y) "
     "{ y = ConvTranspose <strides = [2, 2], output_shape = [15, 16]> (x, w) }"),
    ("DepthToSpace", (7, 11, 13), f"({CONV}) => (y) {{ y = DepthToSpace <blocksize = 2> (x) }}"),
    ("Flatten", (7, 9, 11), f"({PAIR}) => (y) {{ y = Flatten <axis = 2> (x) }}"),
    # Arithmetic.
    ("Gemm", (7, 9, 11),
     "(float[2, 3] x, float[3, 4] w, float[4] c) => (y) "
     "{ y = Gemm <alpha = 0.5, beta = 2.0> (x, w, c) }"),
    ("Gemm two", (11, 13), "(float[2, 3] x, float[3, 4] w) => (y) { y = Gemm (x, w) }"),
    ("PRelu", (7, 9), "(float[2, 3, 4] x, float[3, 1] s) => (y) { y = PRelu (x, s) }"),
    ("Pow", (7, 12), f"({PAIR}, float[4] e) => (y) {{ a = Abs (x) y = Pow (a, e) }}"),
    ("Max", (7, 8, 12), "(float[2, 3] x, float[2, 3] z) => (y) { y = Max (x, z) }"),
    ("Sum", (7, 8), "(float[2, 3] x, float[2, 3] z, float[2, 3] w) => (y) { y = Sum (x, z, w) }"),
    ("Mean", (8, 13), "(float[2, 3] x, float[3] z) => (y) { y = Mean (x, z) }"),
    ("Equal", (7, 11), "(int64[3] x, int64[3] z) => (y) { y = Equal (x, z) }"),
    ("Greater", (7, 9), f"({PAIR}, float[4] z) => (y) {{ g = Greater (x, z) y = Cast <to = 1> (g) }}"),
    ("GreaterOrEqual", (12, 16),
     f"({PAIR}, float[4] z) => (y) {{ g = GreaterOrEqual (x, z) y = Cast <to = 1> (g) }}"),
    ("Shape", (7, 13), f"({PAIR}) => (y) {{ y = Shape (x) }}"),
    ("Reshape", (7, 13), f"({PAIR}) => (y) <int64[2] s = {{0, -1}}> {{ y = Reshape (x, s) }}"),
    ("Reshape constant", (7, 13),
     f"({PAIR}) => (y) {{ s = Constant <value = int64[2] {{0, -1}}> () y = Reshape (x, s) }}"),
    ("CumSum", (11,), f"({PAIR}) => (y) <int64 a = {{1}}> {{ y = CumSum <reverse = 1> (x, a) }}"),
    ("CrossEntropy", (12,),
     "(float[4, 3] x) => (y) <int64[4] t = {0, 2, 1, 1}> { y = SoftmaxCrossEntropyLoss (x, t) }"),
    ("Where", (9, 15), f"({PAIR}, float[4] z) => (y) {{ g = Greater (x, z) y = Where (g, x, z) }}"),
    ("Hard activations", (7, 13),
     f"({PAIR}) => (y) {{ a = HardSigmoid (x) b = Elu (a) c = Selu (b) y = LeakyRelu (c) }}"),
    ("RoiAlign", (10, 15),
     f"({CONV}) => (y) <float[1, 4] r = {{0.5, 0.5, 5, 6}}, int64[1] i = {{1}}> "
     "{ y = RoiAlign <output_height = 2, output_width = 3, sampling_ratio = 2> (x, r, i) }"),
    ("NonZero", (9, 13), f"({PAIR}) => (y) {{ r = Relu (x) y = NonZero (r) }}"),
    # Recurrent networks and control flow.
    ("RNN", (7, 13),
     "(float[5, 2, 3] x, float[1, 4, 3] w, float[1, 4, 4] r) => (y, h) "
     "{ y, h = RNN <hidden_size = 4> (x, w, r) }"),
    ("LSTM", (7, 13),
     "(float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (y, h, c) "
     "{ y, h, c = LSTM <hidden_size = 4> (x, w, r) }"),
    ("GRU", (7, 13),
     "(float[5, 2, 3] x, float[1, 12, 3] w, float[1, 12, 4] r) => (y, h) "
     "{ y, h = GRU <hidden_size = 4, linear_before_reset = 1> (x, w, r) }"),
    ("If", (7, 11, 13),
     "(float[2, 3] x) => (y) <bool c = {1}> { y = If (c) "
     "<then_branch = t () => (float[2, 3] a) { a = Neg (x) }, "
     "else_branch = e () => (float[2, 3] b) { b = Exp (x) }> }"),
    ("If old bodies", (7, 9, 11),
     "(float[2, 3, 4] x) => (y) <bool c = {1}> { y = If (c) "
     "<then_branch = t () => (float[2, 3] a) { a = ReduceSum <axes = [2], keepdims = 0> (x) }, "
     "else_branch = e () => (float[2, 3] b) { b = ReduceMax <axes = [2], keepdims = 0> (x) }> }"),
    ("If old softmax", (9, 11),
     "(float[2, 3, 4] x) => (y) <bool c = {1}> { y = If (c) "
     "<then_branch = t () => (float[2, 3, 4] a) { a = Softmax <axis = 1> (x) }, "
     "else_branch = e () => (float[2, 3, 4] b) { b = Clip <min = 0.0> (x) }> }"),
    ("Loop", (7, 11, 13),
     "(float[2, 3] x) => (y) <int64 n = {3}, bool c = {1}> { y = Loop (n, c, x) "
     "<body = b (int64 i, bool k, float[2, 3] a) => (bool l, float[2, 3] d) "
     "{ l = Identity (k) d = Sin (a) }> }"),
    ("Loop old body", (9, 11),
     "(float[2, 3] x) => (y) <int64 n = {3}, bool c = {1}> { y = Loop (n, c, x) "
     "<body = b (int64 i, bool k, float[2, 3] a) => (bool l, float[2, 3] d) "
     "{ l = Identity (k) u = Unsqueeze <axes = [0]> (a) d = Squeeze <axes = [0]> (u) }> }"),
    ("Scan 9", (9, 11),
     "(float[3] s, float[5, 3] x) => (y, z) { y, z = Scan <num_scan_inputs = 1, body = b "
     "(float[3] a, float[3] v) => (float[3] c, float[3] d) { c = Add (a, v) d = Identity (c) }> "
     "(s, x) }"),
    ("Scan 8", (8,),
     "(float[2, 3] s, float[2, 5, 3] x) => (y, z) { y, z = Scan <num_scan_inputs = 1, body = b "
     "(float[3] a, float[3] v) => (float[3] c, float[3] d) { c = Add (a, v) d = Identity (c) }> "
     "(, s, x) }"),
]  # fmt: skip
