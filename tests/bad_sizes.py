"""Files of a few lines that ask for sizes that no array has, or that no machine holds.

`REFUSED` are models that no run can follow, `LARGE` are valid ones that few machines can run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from conftest import build

Make = Callable[[], onnx.ModelProto]
MOST = 2**63 - 1
REFUSED: dict[str, Make] = {}
LARGE: dict[str, Make] = {}


def _text(body: str, **weights: np.ndarray) -> Make:
    return lambda: build(body, **weights)


def _ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


# ------------------------------------- a vector of as many numbers as an array has no axes

BY_VECTOR = {
    "Reshape": "y = Reshape (x, s)",
    "Expand": "y = Expand (x, s)",
    "ConstantOfShape": "y = ConstantOfShape (s)",
    "Tile": "y = Tile (x, s)",
    "Unsqueeze": "y = Unsqueeze (x, s)",
    "Squeeze": "y = Squeeze (x, s)",
    "ReduceSum": "y = ReduceSum <keepdims = 0> (x, s)",
    "Slice": "y = Slice (x, s, s)",
    "Pad": "y = Pad (x, s)",
    "Split": "y, z = Split (x, s)",
    "Resize to sizes": "y = Resize (x, , , s)",
    "Resize by scales": "y = Resize (x, , r, )",
    "MaxUnpool": "y = MaxUnpool <kernel_shape = [2]> (x, i, s)",
    "Col2Im": "y = Col2Im (x, s, s)",
    "CenterCropPad": "y = CenterCropPad (x, s)",
    "RandomNormalLike": "h = ConstantOfShape (s)\n y = RandomNormalLike (h)",
    "AffineGrid": "y = AffineGrid (x, s)",
    "Reshape by a product": "h = Mul (s, s)\n y = Reshape (x, h)",
    "Expand by two together": "h = Concat <axis = 0> (s, s)\n y = Expand (x, h)",
}
for _name, _lines in BY_VECTOR.items():
    for _length in (70, 10**4, 10**6, 2**31, 2**40, MOST):
        REFUSED[f"{_name}, by int64[{_length}]"] = _text(
            f"g (float[4] x, int64[{_length}] s, float[{_length}] r, int64[4] i) => (float loss) {{"
            f" {_lines}\n loss = ReduceSum <keepdims = 0> (y) }}"
        )

# ----------------------------------------------------------- a matrix where a vector is read

for _name in sorted(set(BY_VECTOR) - {"Pad"}):  # whose numbers runtimes take in any form
    _lines = BY_VECTOR[_name]
    REFUSED[f"{_name}, by a matrix"] = _text(
        f"g (float[4] x, float[2, 1] r, int64[4] i) => (float loss) {{ {_lines}\n"
        " loss = ReduceSum <keepdims = 0> (y) }",
        s=np.full((2, 1), 2, np.int64),
    )

# --------------------------------------------------------------- numbers that the file holds

_ONE = "one = Constant <value_int = 1> ()\n"
_SCALAR = "n = Squeeze (s)\n"
_AXES = "axes = Constant <value_ints = [0, 2]> ()\n signal = Unsqueeze (x, axes)\n"
_HOT = "v = Constant <value_floats = [0.0, 1.0]> ()\n i = Constant <value_ints = [1, 2]> ()\n"
_MEL = "a = Constant <value_float = 0.0> ()\n e = Constant <value_float = 9.0> ()\n"
REFUSED_BY_NUMBERS = {
    "Pad to a negative size": ("y = Pad (x, s)", (-3, -3)),
    "Pad by 2**63 - 1": ("y = Pad (x, s)", (0, MOST)),
    "Pad by a terabyte": ("y = Pad (x, s)", (0, 2**38)),
    "Pad of two axes": ("y = Pad (x, s)", (0, 0, 0, 0)),
    "Reshape to -7": ("y = Reshape (x, s)", (-7,)),
    "Reshape to -1 twice": ("y = Reshape (x, s)", (-1, -1)),
    "Reshape of 4 to 5": ("y = Reshape (x, s)", (5,)),
    "Reshape of 4 to rows of 3": ("y = Reshape (x, s)", (3, -1)),
    "Reshape to an axis that is not there": ("y = Reshape (x, s)", (4, 0)),
    "Reshape to 2**63 - 1": ("y = Reshape (x, s)", (MOST,)),
    "Expand to -4": ("y = Expand (x, s)", (-4,)),
    "Expand of 4 to 3": ("y = Expand (x, s)", (3,)),
    "Expand to 2**62": ("y = Expand (x, s)", (2**60, 4)),
    "ConstantOfShape of -1": ("y = ConstantOfShape (s)", (-1,)),
    "ConstantOfShape of gigabytes": ("y = ConstantOfShape (s)", (2**30,)),
    "ConstantOfShape of 0 by 2**63 - 1": ("y = ConstantOfShape (s)", (0, MOST)),
    "Tile by -1": ("y = Tile (x, s)", (-1,)),
    "Tile of two axes": ("y = Tile (x, s)", (2, 2)),
    "TopK of -1": ("y, i = TopK (x, s)", (-1,)),
    "TopK of 9 of 4": ("y, i = TopK (x, s)", (9,)),
    "TopK of two numbers": ("y, i = TopK (x, s)", (1, 2)),
    "Unsqueeze to 71 axes": ("y = Unsqueeze (x, s)", tuple(range(70))),
    "Squeeze of an axis of 4": ("y = Squeeze (x, s)", (0,)),
    "Split of a negative size": ("y, z = Split (x, s)", (-1, 5)),
    "Split into two of three": ("y, z = Split (x, s)", (1, 1, 2)),
    "Slice by 0": ("z = Sub (s, s)\n y = Slice (x, z, s, z, z)", (1,)),
    "Slice of ends without starts": ("e = Concat <axis = 0> (s, s)\n y = Slice (x, s, e)", (1,)),
    "Resize to -4": ("y = Resize (x, , , s)", (-4,)),
    "Gather of 9 of 4": ("y = Gather (x, s)", (9,)),
    "Range of gigabytes": (
        f"{_SCALAR}{_ONE}z = Sub (n, n)\n r = Range (z, n, one)\n y = Cast <to = 1> (r)",
        (2**31,),
    ),
    "Range by 0": (f"{_SCALAR}z = Sub (n, n)\n r = Range (z, n, z)\n y = Cast <to = 1> (r)", (9,)),
    "OneHot of gigabytes": (f"{_HOT}y = OneHot (i, s, v)", (2**31,)),
    "OneHot of -3": (f"{_HOT}y = OneHot (i, s, v)", (-3,)),
    "HannWindow of -5": (f"{_SCALAR}y = HannWindow (n)", (-5,)),
    "HannWindow of gigabytes": (f"{_SCALAR}y = HannWindow (n)", (2**30,)),
    "MelWeightMatrix of gigabytes": (
        f"{_SCALAR}{_MEL}y = MelWeightMatrix (n, n, n, a, e)",
        (2**16,),
    ),
    "EyeLike of gigabytes": (
        "h = Concat <axis = 0> (s, s)\n z = ConstantOfShape (h)\n y = EyeLike (z)",
        (2**15,),
    ),
    "DFT of -4": (f"{_AXES}{_SCALAR}y = DFT (signal, n)", (-4,)),
    "CenterCropPad to -4": ("y = CenterCropPad (x, s)", (-4,)),
    "an Add of 4 and 3": ("z = ConstantOfShape (s)\n y = Add (x, z)", (3,)),
    "a MatMul of 4 and 3": ("z = ConstantOfShape (s)\n y = MatMul (x, z)", (3, 2)),
}
LARGE_BY_NUMBERS = {
    "Pad to nothing": ("y = Pad (x, s)", (-2, -2)),
    "Pad by gigabytes": ("y = Pad (x, s)", (0, 2**30)),
    "Expand to gigabytes": ("y = Expand (x, s)", (2**29, 4)),
    "Tile by gigabytes": ("y = Tile (x, s)", (2**28,)),
    "Resize to gigabytes": ("y = Resize (x, , , s)", (2**30,)),
    "Unsqueeze to 61 axes": ("y = Unsqueeze (x, s)", tuple(range(60))),
    "DFT of gigabytes": (f"{_AXES}{_SCALAR}y = DFT (signal, n)", (2**30,)),
    "CenterCropPad to gigabytes": ("y = CenterCropPad (x, s)", (2**30,)),
}
for _table, _found in ((REFUSED_BY_NUMBERS, REFUSED), (LARGE_BY_NUMBERS, LARGE)):
    for _name, (_lines, _numbers) in _table.items():
        _body = f"{_lines}\n loss = ReduceSum <keepdims = 0> (y) }}"
        _found[f"{_name}, an initializer"] = _text(
            f"g (float[4] x) => (float loss) {{ {_body}", s=_ints(*_numbers)
        )
        _found[f"{_name}, a Constant"] = _text(
            "g (float[4] x) => (float loss) {"
            f"s = Constant <value_ints = [{', '.join(map(str, _numbers))}]> ()\n {_body}"
        )

# ------------------------------------------------------------------------------------- loops

_CARRY = """g (float[4] x) => (float loss) {{
    y = Loop (n, c, x) <body = b (int64 i, bool k, float[?] h) => (bool k2, float[?] h2) {{
        k2 = {keep}
        h2 = {turn}
    }}>
    loss = ReduceSum <keepdims = 0> (y)
}}"""
_LOOPS = {
    "doubles a value": ("Identity (k)", "Concat <axis = 0> (h, h)"),
    "adds a row": ("Identity (k)", "Concat <axis = 0> (h, x)"),
    "tiles a value": ("Identity (k)", "Tile (h, two)"),
    "runs on": ("Identity (k)", "Tanh (h)"),
    "stops at a condition": ("Less (i, ten)", "Tanh (h)"),
    "never stops at its condition": ("Less (i, far)", "Tanh (h)"),
}
for _name, (_keep, _turn) in _LOOPS.items():
    for _trips in (60, 10**9, MOST):
        _known = _keep.startswith("Identity") and _trips == MOST  # the trips are counted, to no end
        (REFUSED if _known else LARGE)[f"a Loop that {_name}, {_trips} turns at most"] = _text(
            _CARRY.format(keep=_keep, turn=_turn),
            n=np.array(_trips, np.int64),
            c=np.array(True),
            ten=np.array(10, np.int64),
            far=np.array(MOST, np.int64),
            two=_ints(2),
        )

# ----------------------------------------------------------------- operands that do not fit

REFUSED["GatherND over batches of 6 and 3"] = _text(
    "g (float[2, 6, 4] x) => (float loss) { y = GatherND <batch_dims = 2> (x, i)\n"
    " loss = ReduceSum <keepdims = 0> (y) }",
    i=np.zeros((2, 3, 1), np.int64),
)
for _least, _most, _skips, _start in (
    (-MOST, 2, 2, 4), (1, MOST, 2, 4), (1, 2, -1, 4), (2, 1, 1, 4), (1, 2, 1, MOST),
):  # fmt: skip
    REFUSED[f"n-grams of {_least} to {_most} items, {_skips} apart, from {_start} on"] = _text(
        'g (float[1] x, int64[6] i) => (float loss) { t = TfIdfVectorizer <mode = "TF",'
        f" min_gram_length = {_least}, max_gram_length = {_most}, max_skip_count = {_skips},"
        f" ngram_counts = [0, {_start}], ngram_indexes = [0, 1, 2, 3, 4, 5, 6],"
        " pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]> (i)\n y = Mul (t, x)\n"
        " loss = ReduceSum <keepdims = 0> (y) }"
    )
LARGE["n-grams of items that are far apart"] = _text(
    'g (float[1] x, int64[6] i) => (float loss) { t = TfIdfVectorizer <mode = "TF",'
    f" min_gram_length = 1, max_gram_length = 2, max_skip_count = {MOST},"
    " ngram_counts = [0, 4], ngram_indexes = [0, 1, 2, 3, 4, 5, 6],"
    " pool_int64s = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7]> (i)\n y = Mul (t, x)\n"
    " loss = ReduceSum <keepdims = 0> (y) }"
)
