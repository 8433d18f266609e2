"""Whether the operands and attributes of operators with windows fit each other."""

from __future__ import annotations

import math

import onnx_ir as ir

from gradtool.io import static_operands
from gradtool.operators.windows import PADDINGS


def window(node: ir.Node) -> str | None:
    """Strides and dilations are positive, pads are not negative, each has its length."""
    padding = node.attributes.get_string("auto_pad", "NOTSET")
    if padding not in PADDINGS:
        return f"auto_pad {padding!r} must be one of {', '.join(PADDINGS)}"
    sizes = static_operands.sizes(node, 0)
    axes = None if sizes is None else len(sizes) - 2
    for name, least, per_axis in (
        ("strides", 1, 1),
        ("dilations", 1, 1),
        ("kernel_shape", 1, 1),
        ("pads", 0, 2),
        ("output_padding", 0, 1),
    ):
        values = static_operands.ints(node, name)
        if any(value < least for value in values):
            return f"{name} {values} must be at least {least}"
        if values and axes is not None and len(values) != per_axis * axes:
            return f"{name} {values} has {len(values)} numbers for {axes} axes"
    return None


def conv(node: ir.Node) -> str | None:
    """Channels of the input against those of the weight, by groups, and the window."""
    x, w = static_operands.sizes(node, 0), static_operands.sizes(node, 1)
    group = node.attributes.get_int("group", 1)
    kernel = static_operands.ints(node, "kernel_shape")
    if group < 1:
        return f"group {group} must be at least 1"
    if x is not None and w is not None:
        if len(x) != len(w) or len(x) < 3:
            return f"the input has {len(x)} axes, the weight {len(w)}"
        transposed = node.op_type == "ConvTranspose"
        channels = w[0] if transposed else (None if w[1] is None else w[1] * group)
        if None not in (x[1], channels) and x[1] != channels:
            return f"the input has {x[1]} channels, the weight is for {channels}"
        if w[0] is not None and w[0] % group:
            return f"{w[0]} channels cannot be split into {group} groups"
        if kernel and any(a not in (None, b) for a, b in zip(w[2:], kernel, strict=False)):
            return f"kernel_shape {kernel} differs from the weight's shape"
    return window(node)


def pool(node: ir.Node) -> str | None:
    """Pads are smaller than the kernel, and the window is one."""
    broken = window(node)
    if broken is not None:
        return broken
    kernel, pads = static_operands.ints(node, "kernel_shape"), static_operands.ints(node, "pads")
    dilations = static_operands.ints(node, "dilations") or [1] * len(kernel)
    extents = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=False)] * 2
    if any(pad >= extent for pad, extent in zip(pads, extents, strict=False)):
        return f"pads {pads} must be smaller than the kernel {kernel}"
    return None


def deformable(node: ir.Node) -> str | None:
    """As for convolutions; offsets and masks have numbers for each group of channels and tap."""
    broken = conv(node)
    x, w = static_operands.sizes(node, 0), static_operands.sizes(node, 1)
    groups = node.attributes.get_int("offset_group", 1)
    if broken is not None or x is None or w is None:
        return broken
    if groups < 1 or (x[1] is not None and x[1] % groups):
        return f"{x[1]} channels cannot be split into {groups} groups of offsets"
    taps = [size for size in w[2:] if size is not None]
    if len(taps) < len(w) - 2:
        return None
    count = groups * math.prod(taps)
    for name, index, wanted in (("offset", 2, count * len(taps)), ("mask", 4, count)):
        found = static_operands.sizes(node, index)
        if found is not None and (len(found) != len(x) or found[1] not in (None, wanted)):
            return f"its {name} has shape {found}, with {wanted} channels it would fit"
    return None
