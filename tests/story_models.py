"""What the story's `write-model NAME [WIDTH [ACTIVATION]]` runs: writes `models/NAME.onnx`."""

from __future__ import annotations

import sys
from pathlib import Path

from repository import Repository, network

LAYERS = {"encoder": 3, "decoder": 4}


def main() -> None:
    """Write one model into the current folder."""
    name, *options = sys.argv[1:]
    width, activation = (*options, *("64", "wave")[len(options) :])
    model = network(int(width), activation, LAYERS[name])
    Repository(Path.cwd()).write(f"models/{name}.onnx", model)


if __name__ == "__main__":
    main()
