"""Networks that steps are timed on, beside those of `stock_models`, and the ratios aimed at."""

from __future__ import annotations

from itertools import pairwise

import torch
from attention_models import Bert, Swin, ViT
from image_models import ConvNeXt, MobileNetV3, ResNet50
from stock_models import SUBJECTS as STOCK
from stock_models import Blocks, Layer, Subject
from torch import Tensor, nn


class Perceptron(Blocks):
    """Layers of such widths, an activation between them."""

    def __init__(self, widths: tuple[int, ...], activation: type[nn.Module]) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for narrow, wide in pairwise(widths):
            parts += [nn.Linear(narrow, wide), activation()]
        self.layers = nn.Sequential(*parts[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class VGG16(Blocks):
    """Images [N, 3, 224, 224] → logits [N, 1000] (Simonyan, Zisserman 2014, arXiv:1409.1556)."""

    def __init__(self) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        before = 3
        for wide, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                parts += [nn.Conv2d(before, wide, 3, 1, 1), nn.ReLU()]
                before = wide
            parts.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*parts)
        self.head = Perceptron((512 * 49, 4096, 4096, 1000), nn.ReLU)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


class GptBlock(Blocks):
    """One layer of a GPT, the mean over its places: [N, T, D] → [N, D]."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.layer = Layer(width, heads)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).mean(1)


class Gpt2(Blocks):
    """Tokens [N, T] → logits [N, T, 50257], its words tied (Radford et al. 2019): the small one."""

    def __init__(self, words: int = 50257, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, 12) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.words(x) + self.places(torch.arange(x.shape[1]))
        for layer in self.layers:
            x = self.through(layer, x)
        return self.head(self.norm(x))


class Recurrent(Blocks):
    """An LSTM, the mean over its places: [N, T, D] → [N, D]."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0].mean(1)


SUBJECTS = STOCK | {
    "VGG-16": Subject(VGG16, (2, 3, 224, 224), 1000, -1),
    "GPT-block": Subject(GptBlock, (4, 256, 512), 512, -1),
    "GPT-2": Subject(Gpt2, (1, 512), 50257, -1, tokens=True),
    "BERT": Subject(Bert, (4, 128), 30522, -1, tokens=True),
    "ResNet-50": Subject(ResNet50, (8, 3, 224, 224), 1000, -1),
    "MobileNet": Subject(MobileNetV3, (8, 3, 224, 224), 1000, -1),
    "ViT": Subject(ViT, (2, 3, 224, 224), 1000, -1),
    "Swin": Subject(Swin, (2, 3, 224, 224), 1000, -1),
    "ConvNeXt": Subject(ConvNeXt, (2, 3, 224, 224), 1000, -1),
    "LSTM": Subject(Recurrent, (32, 64, 256), 256, -1),
    "MLP": Subject(lambda: Perceptron((64, 128, 128, 10), nn.ReLU), (32, 64), 10, -1),
    "PINN": Subject(lambda: Perceptron((2, 32, 32, 32, 2), nn.Tanh), (64, 2), 2, -1),
    "DQN": Subject(lambda: Perceptron((4, 64, 64, 2), nn.ReLU), (32, 4), 2, -1),
}

# Seconds of a step by those of the faster of PyTorch eager's two, on one thread, at most.
BARS = {
    **dict.fromkeys(("ResNet-18", "VGG-16"), 0.62),
    **dict.fromkeys(("ResNet-50", "MobileNet", "U-Net"), 0.80),
    **dict.fromkeys(("GPT-block", "GPT", "GPT-2", "BERT"), 0.85),
    **dict.fromkeys(("ViT", "Swin", "ConvNeXt"), 0.95),
    "LSTM": 1.0,
    **dict.fromkeys(("MLP", "PINN", "DQN"), 0.30),
}
