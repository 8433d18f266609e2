"""Fresh exports by PyTorch show their modules in `report --by module`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

LAYERS = 2


def exported(path, *, dynamo):
    """A small encoder, and the line of its `forward` in this file."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear1, self.linear2 = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16)

        def forward(self, x):
            return x + self.linear2(self.linear1(x).sin())  # whose gradient reads its input

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS))
            self.head = torch.nn.Linear(16, 8)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    options = {"training": torch.onnx.TrainingMode.TRAINING} if not dynamo else {"verbose": False}
    torch.onnx.export(Model(), (torch.ones(64, 16),), path, dynamo=dynamo, **options)
    return next(
        number
        for number, line in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "return x + self.linear2" in line
    )


def modules(run, path, *options):
    """The rows of `--by module` and their bytes."""
    outcome = run("report", str(path), "--by", "module", "--format", "csv", *options)
    assert outcome.code == 0, outcome.err
    return [line.split(",")[0] for line in outcome.out.splitlines()[1:]]


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_modules_and_lines_of_the_exporter_by_torch_export(run, tmp_path):
    line = exported(tmp_path / "model.onnx", dynamo=True)
    rows = modules(run, tmp_path / "model.onnx", "--top", "99")
    block = f"(test_export_modules.py:{line})"

    assert {f"layers.0.linear1 {block}", f"layers.1.linear2 {block}"} <= set(rows)
    assert {f"layers.{layer} {block}" for layer in range(LAYERS)} <= set(rows)  # Sin
    assert not any(row.startswith(("node_", "(top)")) for row in rows)


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_modules_of_the_exporter_by_torchscript(run, tmp_path):
    exported(tmp_path / "model.onnx", dynamo=False)
    rows = modules(run, tmp_path / "model.onnx", "--top", "99")

    assert {"layers.0.linear1", "layers.1.linear2"} <= set(rows)
    assert {f"layers.{layer}" for layer in range(LAYERS)} <= set(rows)  # Sin
    assert "(top)" not in rows


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_backward_and_plans_that_compute_again_have_modules_too(run, tmp_path, dynamo):
    exported(tmp_path / "model.onnx", dynamo=dynamo)
    out = run("mirror", "--report", str(tmp_path / "model.onnx"), "--by", "module",
              "--format", "json")  # fmt: skip

    for plan in json.loads(out.out)["plans"]:
        found = plan["parts"]
        assert sum(size for name, size in found.items() if name.startswith("layers.")) > 0
        assert "(top)" not in found
