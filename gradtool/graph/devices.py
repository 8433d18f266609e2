"""Placement of nodes on devices (ONNX multi-device configurations), carried over to other nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import onnx_ir as ir


def place_like(node: ir.Node, original: ir.Node, moved: Mapping[ir.Value, ir.Value]) -> None:
    """Give `node` the configurations of `original`: the same devices and pipeline stage.

    `moved` maps values of `original` to those of `node`; the sharding of a value that `node` has
    nothing to do with is left out.
    """
    _place(node, original, {old: (new,) for old, new in moved.items()})


def place_gradient(
    node: ir.Node, original: ir.Node, gradients: Mapping[ir.Value, Iterable[ir.Value]]
) -> None:
    """Give a `node`, emitted by a gradient rule for `original`, its configurations.

    A gradient is sharded as its value is; `gradients` has those of the values of `original`.
    """
    _place(node, original, {value: (value, *found) for value, found in gradients.items()})


def _place(
    node: ir.Node, original: ir.Node, instances: Mapping[ir.Value, Iterable[ir.Value]]
) -> None:
    """Configurations with the sharding of each value carried over to its `instances`."""
    if not original.device_configurations:
        return
    own = {v for v in (*node.inputs, *node.outputs) if v is not None}
    node.device_configurations = tuple(
        replace(
            configuration,
            sharding_specs=tuple(
                replace(spec, value=value)
                for spec in configuration.sharding_specs
                if spec.value is not None
                for value in dict.fromkeys(instances.get(spec.value, (spec.value,)))
                if value in own
            ),
        )
        for configuration in original.device_configurations
    )
