"""Values of attention may have a type of their own, which their gradient has too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import gradtool as gt

TEXT = """<ir_version: 10, opset_import: ["" : 23]>
g (float[2, 4, 3, 4] q, float[2, 1, 5, 4] k, float16[2, 1, 5, 6] v)
    => (float[2, 4, 3, 6] y) { y = Attention (q, k, v) }"""


def graph(text, **options):
    return gt.grad(gt.load(onnx.parser.parse_model(text)), loss="sum:y", wrt=[*"qkv"], **options)


@pytest.mark.parametrize("fuse", [True, False])
def test_values_of_half_precision_have_such_gradients(tmp_path, fuse):
    random = np.random.default_rng(0)
    q, k = random.normal(size=(2, 4, 3, 4)), random.normal(size=(2, 1, 5, 4))
    v = random.normal(size=(2, 1, 5, 6)).astype(np.float16)
    feeds = {"q": q.astype(np.float32), "k": k.astype(np.float32), "v": v}
    mixed, plain = graph(TEXT, fuse_attention=fuse), graph(TEXT.replace("float16", "float"))
    found = gt.run(mixed, feeds).gradients
    wanted = gt.run(plain, {**feeds, "v": v.astype(np.float32)}).gradients
    gt.save(mixed.model, tmp_path / "out.onnx")
    onnx.checker.check_model(str(tmp_path / "out.onnx"), full_check=True)

    assert found["v"].dtype == np.float16
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=2e-3, atol=2e-3)
