from __future__ import annotations

import numpy as np
import pytest
from conftest import swept
from shape_graphs import NAMES, SIZES, shape_graph

import gradtool as gt
from gradtool.program.flatten import flatten


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("seed", swept(1500, 5))
def test_a_size_that_follows_from_sizes_is_planned(seed, is_open, tmp_path):
    proto = shape_graph(seed, is_open=is_open)
    shape = tuple(int(n) for n in proto.metadata_props[0].value.split(",") if n)
    path, out = tmp_path / "model.onnx", tmp_path / "grad.onnx"
    path.write_bytes(proto.SerializeToString())
    x = np.linspace(-1, 1, np.prod(SIZES), dtype=np.float32).reshape(SIZES)
    made = gt.grad(gt.load(path), loss="sum:y", input_grad=["x"])
    gt.save(made, out)
    sizes = dict(zip(NAMES, SIZES, strict=True)) if is_open else {}
    program = flatten(gt.load(out, dims=sizes))
    found = gt.run(made, {"x": x}, measure=True)

    assert found.outputs["y"].shape == shape
    assert found.gradients["x"] == pytest.approx(np.prod(shape) * (1 - np.tanh(x) ** 2), rel=1e-4)
    assert not any(map(program.is_dynamic, program.steps))
    assert found.measurement.dynamic == 0
