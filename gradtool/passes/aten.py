"""Names that PyTorch's exporter gives to what operations make, by which tensors know their origin.

Source: the operations of `torch.ops.aten` (PyTorch 2.13) that make, bend or lay out tensors, and
the `torch.fx` rule for names: that of the operation, perhaps `_default`, and a number.
"""

from __future__ import annotations

import re

_MADE = """arange empty empty_like empty_strided eye full full_like linspace logspace meshgrid
new_empty new_full new_ones new_zeros one_hot ones ones_like randn scalar_tensor
tril_indices triu_indices zeros zeros_like"""
_BENT = """abs acos add all amax amin any argmax argmin argsort asin atan atan2 bitwise_and
bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize ceil clamp
clamp_max clamp_min clip cos cosh cummax cummin cumprod cumsum div eq erf exp exp2 expm1 fill floor
floor_divide fmod ge gt isinf isnan le linear log log10 log1p log2 logical_and logical_not
logical_or logical_xor lt masked_fill masked_scatter maximum minimum mod mul ne neg pow
prod reciprocal remainder round rsqrt rsub searchsorted sigmoid sign sin sinh softmax sort sqrt
square sub sum tan tanh topk tril triu trunc where"""
_LAID_OUT = """_to_copy _unsafe_view alias as_strided broadcast_to cat chunk clone
constant_pad_nd contiguous copy detach diagonal expand flatten flip gather getitem index
index_put index_select lift_fresh_copy narrow outer pad permute repeat repeat_interleave reshape
roll scatter select select_scatter slice slice_scatter split squeeze stack t tile to transpose
type_as unbind unflatten unfold unsqueeze view"""
_OPERATIONS = "|".join((*_MADE.split(), *_BENT.split(), *_LAID_OUT.split()))
_NAME = re.compile(rf"(?:{_OPERATIONS})(?:_tensor|_scalar|_default)*(?:_\d+)?|val_\d+")


def is_of_operation(name: str) -> bool:
    """Whether something is called as what an operation makes, not as a parameter."""
    return _NAME.fullmatch(name) is not None
