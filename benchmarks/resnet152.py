"""ResNet-152 v2 with and without mirroring: the bytes of activations that are planned.

    python benchmarks/resnet152.py [--batch 32] [--size 224] [--json FILE]

The training graph of the pre-activation network (He et al. 2016, arXiv:1603.05027) is made without
weights.  Activations are what is alive at the busiest step beside parameters, inputs, gradients,
outputs and workspace.  MXNet asserts that its own plan of this network, in its fused operators,
takes less than 0.6 of the bytes with mirroring; so a row fails from 0.6 on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

import gradtool as gt
from gradtool.planning.no_recompute import no_recompute
from gradtool.planning.plan import Plan
from gradtool.planning.recompute.mirror import decide
from gradtool.planning.recompute.mirrored import mirrored
from gradtool.planning.recompute.policy import POLICIES
from gradtool.planning.schedule import replay
from gradtool.program.flatten import flatten

STAGES = ((3, 64, 1), (8, 128, 2), (36, 256, 2), (3, 512, 2))
CLASSES = 1000
LIMIT = 0.6


class Network:
    """Nodes and weights of the network, made one layer at a time."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *shape: int) -> str:
        """A weight whose data lies in a file that is not there."""
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="absent.bin")
        self.weights.append(tensor)
        return name

    def node(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, called as it is."""
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def conv(self, x: str, name: str, sizes: tuple[int, int], kernel: int, stride: int) -> str:
        """A convolution from `sizes[0]` to `sizes[1]` channels."""
        weight = self.weight(f"{name}/w", sizes[1], sizes[0], kernel, kernel)
        pads, strides = [kernel // 2] * 4, [stride, stride]
        return self.node("Conv", name, x, weight, pads=pads, strides=strides)

    def active(self, x: str, name: str, channels: int) -> str:
        """Batch normalisation and Relu."""
        state = [self.weight(f"{name}/{k}", channels) for k in ("scale", "bias", "mean", "var")]
        return self.node("Relu", f"{name}/relu", self.node("BatchNormalization", name, x, *state))

    def unit(self, x: str, name: str, sizes: tuple[int, int], stride: int) -> str:
        """A pre-activation bottleneck; its shortcut is a convolution where the sizes change."""
        inside = sizes[1] // 4
        first = self.active(x, f"{name}/norm1", sizes[0])
        y = self.conv(first, f"{name}/conv1", (sizes[0], inside), 1, 1)
        y = self.active(y, f"{name}/norm2", inside)
        y = self.conv(y, f"{name}/conv2", (inside, inside), 3, stride)
        y = self.active(y, f"{name}/norm3", inside)
        y = self.conv(y, f"{name}/conv3", (inside, sizes[1]), 1, 1)
        if sizes[0] != sizes[1]:
            x = self.conv(first, f"{name}/shortcut", sizes, 1, stride)
        return self.node("Add", f"{name}/sum", x, y)


def model(batch: int, size: int) -> onnx.ModelProto:
    """ResNet-152 v2 from images to scores."""
    network, channels = Network(), 64
    x = network.active(network.conv("image", "stem", (3, 64), 7, 2), "stem/norm", 64)
    x = network.node("MaxPool", "pool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for number, (units, inside, first) in enumerate(STAGES):
        for index in range(units):
            sizes, stride = (channels, 4 * inside), first if index == 0 else 1
            x = network.unit(x, f"stage{number}/unit{index}", sizes, stride)
            channels = 4 * inside
    x = network.node("GlobalAveragePool", "mean", network.active(x, "last", channels))
    x = network.node("Flatten", "features", x)
    weights = network.weight("scores/w", CLASSES, channels), network.weight("scores/b", CLASSES)
    network.node("Gemm", "scores", x, *weights, transB=1)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, size, size])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [batch, CLASSES])
    graph = helper.make_graph(network.nodes, "resnet152", [image], [scores], network.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def activations(plan: Plan) -> int:
    """Bytes of activations at the busiest step."""
    return plan.regions(plan.peak_step).get("activations", 0)


def measured(batch: int, size: int) -> dict[str, Any]:
    """Both plans of the network."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "resnet152.onnx")
        onnx.save(model(batch, size), path)
        training = gt.grad(gt.load(path), loss="ce", train_mode=True).model
    program = flatten(training)
    start = time.perf_counter()
    decision = decide(flatten(training, views=False), POLICIES["mirror"])
    result = mirrored(program, decision)
    seconds = time.perf_counter() - start
    before, after = no_recompute(program), no_recompute(replay(program, result.outcome.schedule))
    return {
        "steps": len(program.steps),
        "decided": result.decided,
        "applied": len(result.applied),
        "seconds": round(seconds, 3),
        "extra_percent": result.outcome.extra_percent,
        "unknown": result.outcome.extra.unknown,
        "activations": [activations(before), activations(after)],
        "peak": [before.peak, after.peak],
    }


def main() -> int:
    """Parse, plan, print; the exit code says whether mirroring saves enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    row = measured(arguments.batch, arguments.size)
    ratios = {}
    for name in ("activations", "peak"):
        before, after = row[name]
        ratios[name] = after / before
        print(f"{name:<12}{before / 2**20:>10.1f} MiB{after / 2**20:>10.1f} MiB"
              f"{ratios[name]:>8.3f}")  # fmt: skip
    print(f"{row['decided']} nodes decided, {row['applied']} of {row['steps']} steps run again "
          f"(+{row['extra_percent'] or 0:.2f} % FLOPs, {row['unknown']} of unknown cost) "
          f"in {row['seconds']} s")  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(row | {"ratio": ratios}, indent=1) + "\n")
    return 0 if ratios["activations"] < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
