r"""A text, byte by byte: writes `letters.onnx`, a small GPT, and stretches of the Python manual.

    python samples/letters.py --out DIR
    gradtool train DIR/letters.onnx --data DIR/letters.train.npz --eval DIR/letters.test.npz \
        --metric perplexity --steps 600 --every 150 --batch 16 --lr 3e-3 --schedule cosine

The text is that of `pydoc_data.topics`, which comes with Python; its last tenth is kept for the
test.  The model is that of `transformer.onnx`.
"""

from __future__ import annotations

from pydoc_data.topics import topics

import numpy as np
import transformer
from making import main, npz

PART = 10  # the share of the test
MOST = 200_000  # bytes


def text() -> np.ndarray:
    """The topics of the manual in the order of their names, as bytes."""
    joined = "\n".join(topics[name] for name in sorted(topics))
    return np.frombuffer(joined.encode("ascii", "replace")[:MOST], np.uint8).astype(np.int64)


def stretches(found: np.ndarray) -> dict[str, np.ndarray]:
    """Stretches one after the other; the label of a byte is the next one."""
    count = (len(found) - 1) // transformer.CONTEXT
    end = count * transformer.CONTEXT
    shape = (count, transformer.CONTEXT)
    return {"tokens": found[:end].reshape(shape), "labels": found[1 : end + 1].reshape(shape)}


def files() -> dict[str, bytes]:
    """What is written, by name."""
    found = text()
    cut = len(found) - len(found) // PART
    return {
        "letters.onnx": transformer.model().SerializeToString(),
        "letters.train.npz": npz(stretches(found[:cut])),
        "letters.test.npz": npz(stretches(found[cut:])),
    }


if __name__ == "__main__":
    main(__doc__, files)
