"""Placement of nodes on devices (ONNX multi-device configurations), carried over to other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir


def place_like(node: ir.Node, original: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> None:
    """Give `node` the configurations of `original`: the same devices and pipeline stage.

    `moved` maps values of `original` to those of `node`; the sharding of a value that `node` has
    nothing to do with is left out.
    """
    if not original.device_configurations:
        return
    own = {v for v in (*node.inputs, *node.outputs) if v is not None}
    node.device_configurations = tuple(
        replace(
            configuration,
            sharding_specs=tuple(
                replace(spec, value=value)
                for spec in configuration.sharding_specs
                if spec.value is not None and (value := moved.get(spec.value, spec.value)) in own
            ),
        )
        for configuration in original.device_configurations
    )
