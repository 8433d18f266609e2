"""Gradients of pooling."""

from __future__ import annotations

from gradtool.errors import UnsupportedGradient
from gradtool.functions.calls import arguments
from gradtool.gradients import gradient
from gradtool.windows import Window


@gradient("MaxPool")
def max_pool(op, node, dy, dindices=None):
    """`y = max` over each window: dy is added at the place of the maximum, the first of equals.

    The places are the node's own second output; x is not kept.
    """
    x = node.inputs[0]
    indices = op.all_outputs(node, 2)[1]
    order = node.attributes.get_int("storage_order", 0)
    return op.MaxPoolGrad(dy, indices, op.shape(x), storage_order=order)


@gradient("AveragePool")
def average_pool(op, node, dy):
    """`y = mean` over each window: dy, by the number of elements, is added to all of them."""
    x = node.inputs[0]
    given = arguments(node)
    try:
        window = Window.of(given["kernel_shape"], x.shape[2:], given)
    except ValueError as error:
        raise UnsupportedGradient(node, str(error)) from None
    return op.AveragePoolGrad(
        dy, op.shape(x), kernel_shape=window.kernel, **window.attributes,
        count_include_pad=given.get("count_include_pad", 0), ceil_mode=given.get("ceil_mode", 0),
    )  # fmt: skip


@gradient("GlobalAveragePool")
def global_average_pool(op, node, dy):
    """`y = mean` over each plane:  dx = dy / elements of a plane."""
    x = node.inputs[0]
    return op.expand(dy / op.length(x, range(2, len(x.shape))), x)


@gradient("GlobalMaxPool")
def global_max_pool(op, node, dy):
    """`y = max` over each plane:  dx = dy at the first place of the maximum."""
    return op.GlobalMaxPoolGrad(node.inputs[0], dy)
