"""50 steps of a kit on a batch, with numpy and onnxruntime alone.

    python train.py KIT BATCH.npz TRAINED

Prints each loss and the loss of the evaluation, and writes the state as a folder of binaries.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

STEPS = 50


class Kit:
    """A kit of `gradtool kit`, and the state as it is now."""

    def __init__(self, folder: Path, options: ort.SessionOptions) -> None:
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.tensors = self.manifest["state"]["tensors"]
        self.state = {
            each["name"]: np.fromfile(folder / each["file"], each["type"]).reshape(each["shape"])
            for each in self.tensors
        }
        for name, value in self.manifest["onnxruntime"].items():  # what keeps the memory plan
            setattr(options, name, value)
        self.sessions = {
            part: ort.InferenceSession(folder / self.manifest[part]["file"], options)
            for part in ("step", "eval")
        }

    def step(self, batch: dict[str, np.ndarray]) -> float:
        """Train on a batch; the loss."""
        found = self._run("step", batch)
        self.state = {each["name"]: found[each["next"]] for each in self.tensors}
        return float(found[self.manifest["loss"]])

    def evaluate(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the model makes of a batch with the weights as they are now."""
        return self._run("eval", batch)

    def _run(self, part: str, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        told = self.manifest[part]
        given = {i["name"]: i["default"] for i in told["inputs"] if "default" in i} | batch
        feeds = {i["name"]: np.asarray(given[i["name"]], i["type"]) for i in told["inputs"]}
        feeds |= {name: self.state[name] for name in told["state"]}
        names = [each["name"] for each in told["outputs"]]
        return dict(zip(names, self.sessions[part].run(names, feeds), strict=True))

    def save(self, folder: Path) -> None:
        """Write the state as the kit has it: one binary per tensor."""
        folder.mkdir()
        for each in self.tensors:
            self.state[each["name"]].tofile(folder / Path(each["file"]).name)


def main() -> None:
    folder, data, trained = map(Path, sys.argv[1:])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # so small a model is fastest on one thread
    kit = Kit(folder, options)
    batch = dict(np.load(data))
    for step in range(STEPS):
        print(step, kit.step(batch))
    print("evaluation", float(kit.evaluate(batch)[kit.manifest["loss"]]))
    kit.save(trained)


if __name__ == "__main__":
    main()
