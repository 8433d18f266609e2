r"""Transfer learning: a network that knows digits learns from 40 images which of them are odd.

    python samples/transfer.py --base DIR/digits.trained.onnx --out DIR
    gradtool train DIR/transfer.onnx --data DIR/transfer.train.npz --eval DIR/transfer.test.npz \
        --metric accuracy --wrt 'head.*' --batch 10 --epochs 60 --lr 1e-2 --schedule cosine

The base is what `digits.py` is for, trained.  It stays as it is: only the new head has gradients
and state.  The images of the test are those that the base has not seen either.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnx
from digits import images, model, split
from making import npz, write

CLASSES, FEW = 2, 40


def fresh(base: onnx.ModelProto) -> onnx.ModelProto:
    """The base with a head that knows nothing: `logits` [batch, 2]."""
    made = model(CLASSES)
    known = {tensor.name: tensor for tensor in base.graph.initializer}
    for tensor in made.graph.initializer:
        if not tensor.name.startswith("head."):
            tensor.CopyFrom(known[tensor.name])
    return made


def files(base: onnx.ModelProto) -> dict[str, bytes]:
    """What is written, by name."""
    found, labels = images()
    parts = split(found, labels % CLASSES)
    few = {name: array[:FEW] for name, array in parts["train"].items()}
    return {
        "transfer.onnx": fresh(base).SerializeToString(),
        "transfer.train.npz": npz(few),
        "transfer.test.npz": npz(parts["test"]),
    }


def main() -> None:
    """Write the model and its data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=".", help="a folder; default: .")
    parser.add_argument("--base", type=Path, required=True, help="the trained model of digits")
    asked = parser.parse_args()
    write(asked.out, files(onnx.load(asked.base)))


if __name__ == "__main__":
    main()
