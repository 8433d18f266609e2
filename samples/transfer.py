r"""Transfer learning: a network that knows digits learns from 40 images which of them are odd.

    python samples/transfer.py --out DIR
    gradtool train DIR/digits.trained.onnx --head logits:2 --wrt 'head.*' -o DIR/transfer.onnx \
        --data DIR/transfer.train.npz --eval DIR/transfer.test.npz --metric accuracy \
        --batch 10 --epochs 60 --lr 1e-2 --schedule cosine

The base is what `digits.py` is for, trained.  It stays as it is: only the new head has gradients
and state.  The images of the test are those that the base has not seen either.
"""

from __future__ import annotations

from digits import images, split
from making import main, npz

CLASSES, FEW = 2, 40


def files() -> dict[str, bytes]:
    """What is written, by name."""
    found, labels = images()
    parts = split(found, labels % CLASSES)
    few = {name: array[:FEW] for name, array in parts["train"].items()}
    return {"transfer.train.npz": npz(few), "transfer.test.npz": npz(parts["test"])}


if __name__ == "__main__":
    main(__doc__, files)
