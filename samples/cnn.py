"""A small residual network that tells ten drawn shapes apart."""

from __future__ import annotations

import onnx
from network import FLOAT, Network


def model() -> onnx.ModelProto:
    """A small ResNet: `image` float[batch, 3, 32, 32] → `logits` float[batch, 10]."""
    net = Network("cnn", seed=1)
    x = net.input("image", FLOAT, ["batch", 3, 32, 32])
    net.output("logits", ["batch", 10])

    x = conv(net, "stem.conv", x, (3, 16), kernel=3)
    x = batch_norm(net, "stem.bn", x, 16)
    x = net.op("Relu", "stem.relu", x)

    x = residual(net, "block1", x, (16, 16), stride=1)
    x = residual(net, "block2", x, (16, 32), stride=2)

    x = net.op("MaxPool", "pool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.op("GlobalAveragePool", "average", x)
    x = net.op("Flatten", "flatten", x, axis=1)
    weight, bias = net.weight("head.weight", (10, 32), fan_in=32), net.zeros("head.bias", (10,))
    net.node("Gemm", "head", [x, weight, bias], ["logits"], transB=1)
    return net.model()


def residual(net: Network, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
    """Two 3×3 convolutions beside the identity, or beside a 1×1 projection if the shape changes."""
    narrow, wide = channels
    shortcut = x
    if stride != 1 or narrow != wide:
        shortcut = conv(net, f"{name}.project.conv", x, channels, kernel=1, stride=stride)
        shortcut = batch_norm(net, f"{name}.project.bn", shortcut, wide)

    x = conv(net, f"{name}.conv1", x, channels, kernel=3, stride=stride)
    x = batch_norm(net, f"{name}.bn1", x, wide)
    x = net.op("Relu", f"{name}.relu1", x)
    x = conv(net, f"{name}.conv2", x, (wide, wide), kernel=3)
    x = batch_norm(net, f"{name}.bn2", x, wide)

    x = net.op("Add", f"{name}.add", x, shortcut)
    return net.op("Relu", f"{name}.relu2", x)


def conv(
    net: Network, name: str, x: str, channels: tuple[int, int], *, kernel: int, stride: int = 1
) -> str:
    """A square convolution without bias, padded so that only the stride shrinks the image."""
    narrow, wide = channels
    shape = (wide, narrow, kernel, kernel)
    weight = net.weight(f"{name}.weight", shape, fan_in=narrow * kernel * kernel)
    return net.op(
        "Conv",
        name,
        x,
        weight,
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[kernel // 2] * 4,
    )


def batch_norm(net: Network, name: str, x: str, channels: int) -> str:
    """Normalises by the statistics of the batch; the new running ones are graph outputs."""
    size = (channels,)
    weight, bias = net.ones(f"{name}.weight", size), net.zeros(f"{name}.bias", size)
    mean = net.zeros(f"{name}.running_mean", size)
    variance = net.ones(f"{name}.running_var", size)
    y, *running = net.node(
        "BatchNormalization",
        name,
        [x, weight, bias, mean, variance],
        [f"{name}.out", f"{mean}.next", f"{variance}.next"],
        training_mode=1,
    )
    for statistic in running:
        net.output(statistic, size)
    return y
