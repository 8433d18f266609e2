"""Files of PyTorch's first exporter: every size follows from those of inputs, at any opset."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from conftest import swept

import gradtool as gt
from gradtool.graph import deciding, walk

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.extra

OPSETS = (9, 10, 11, 12, 13, 14, 16, 17)
NAMES = ("bert", "t5", "bart", "gpt", "vit", "squeezed")
FIRST = tuple(zip(NAMES, (14, 9, 11, 13, 17, 12), strict=True))
EVERY = [(name, opset) for name in NAMES for opset in OPSETS
         if opset > 9 or name not in ("bert", "gpt")]  # fmt: skip
CASES = [*FIRST, *(case for case in EVERY if case not in FIRST)]


@pytest.mark.parametrize("number", swept(len(CASES), len(FIRST)))
def test_sizes_follow_from_inputs_and_gradients_are_those_of_torch(number, tmp_path):
    import torchscript_modules

    torch.manual_seed(0)
    name, opset = CASES[number]
    module, example, axes = torchscript_modules.CASES[name]
    net = module().eval()
    path = tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, example(2, 5), path, dynamo=False, opset_version=opset, input_names=list(axes),
            output_names=["y"], dynamic_axes={**axes, "y": {0: "batch"}},
            do_constant_folding=opset % 2 == 0,
        )  # fmt: skip
    model = gt.load(path)
    shapes = [v.shape for node in walk.nodes(model.graph) for v in node.outputs]
    assert None not in shapes
    open_ones = {d for s in shapes for d in s if not isinstance(d, int)}
    inferred = {d for d in open_ones if any(map(deciding.is_inferred, d.free_symbols()))}
    assert None not in {d.value for d in open_ones}
    assert not inferred

    made = gt.grad(model, loss="mean:y")
    for sizes in ((1, 3), (3, 6)):
        given = example(*sizes)
        net.zero_grad()
        net(*given).mean().backward()
        feeds = {n: np.asarray(a) for n, a in zip(axes, given, strict=True)}
        found = gt.run(made, feeds).gradients
        shared = {n: p.grad for n, p in net.named_parameters() if n in found}
        assert len(shared) >= 2
        for parameter, expected in shared.items():
            error = np.abs(found[parameter] - expected.numpy()).max()
            assert error <= 1e-5 + 1e-3 * expected.abs().max().item(), parameter
