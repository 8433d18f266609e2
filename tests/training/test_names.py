"""What a model calls its weights changes nothing: no name of the step is taken for one of them."""

import itertools

import numpy as np
import onnx
import pytest
from conftest import build, sampled
from onnx import numpy_helper
from trainings import NATIVE, examples, weights

import gradtool as gt

OF_EACH = ("exp_avg", "exp_avg_sq", "average", "average_next", "grad", "grad_in", "next")
OF_A_STEP = (
    "step", "lr", "beta1", "weight_decay", "clip_norm", "gradient_scale", "loss_grad", "loss",
    "const", *(f"const_{n}" for n in range(1, 24)),
)  # fmt: skip
NAMES = (*(f"{w}_{kind}" for w in weights() for kind in OF_EACH), *OF_A_STEP)
DATA = examples(48)


def net(names):
    """A dense network whose input goes through a factor for each name; no step changes these."""
    factors, source = [], "x"
    for number, name in enumerate(names):
        factors.append(f"factor{number} = Mul ({source}, {name})")
        source = f"factor{number}"
    rng = np.random.default_rng(2)
    drawn = {n: (1 + rng.random(6) / 50).astype(np.float32) for n in names}
    lines = "\n".join(factors)
    body = f"""net (float[batch, 6] x) => (float[batch, 3] y) {{
        {lines}
        h = MatMul ({source}, w1)
        s = Add (h, b1)
        r = Tanh (s)
        m = MatMul (r, w2)
        y = Add (m, b2)
    }}"""
    return build(body, **weights(), **drawn)


def trained(names, path, **options):
    """The weights after some steps, and what the file has that is written."""
    options |= {"batch": 8, "steps": 5, "lr": 0.1, "wrt": list(weights())}
    with gt.Trainer(gt.load(net(names)), **options) as trainer:
        trainer.fit(DATA)
        trainer.save(path, force=True)
        values = trainer.session.values()
        found = {name: values[name] for name in weights()}
    held = onnx.load(path).graph.initializer
    return found, {each.name: numpy_helper.to_array(each) for each in held}


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("parts", "plan", "kernels", "ema"),
    sampled(itertools.product([1, 2], ["keep", "mirror"], ["numpy", NATIVE], [None, 0.9])),
)
def test_weights_called_as_what_a_step_makes_train_alike(parts, plan, kernels, ema, tmp_path):
    options = {
        "micro_batches": parts, "plan": plan, "kernels": kernels, "ema": ema,
        "optimizer": "adamw", "clip_norm": 0.5,
    }  # fmt: skip
    plain = [f"weight{number}" for number in range(len(NAMES))]
    expected, _ = trained(plain, tmp_path / "plain.onnx", **options)
    found, written = trained(NAMES, tmp_path / "named.onnx", **options)
    first = {each.name: numpy_helper.to_array(each) for each in net(NAMES).graph.initializer}

    for name, value in expected.items():
        assert found[name].tobytes() == value.tobytes()
        assert written[name].tobytes() == value.tobytes()
    for name in NAMES:
        assert written[name].tobytes() == first[name].tobytes()
