"""Models whose exporter wrote the number of examples into nodes, though their inputs are open."""

import numpy as np
import pytest
from conftest import build, sampled
from trainings import examples, weights

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.training.callbacks import Watcher

# Where the number N stands that an exporter was shown.
FIXED = {
    "a shape": "t = Reshape (x, shape)",
    "a shape that leaves out another size": "t = Reshape (x, lead)",
    "a state": "l, last = RNN <hidden_size = 6> (xs, wx, wh, , , first)  t = Squeeze (l, axes)",
}
BODY = """net (float[{batch}, 6] x) => (float[{batch}, 3] y) {{
    xs = Unsqueeze (x, front)
    {fixed}
    h = MatMul (t, w1)
    s = Add (h, b1)
    r = Tanh (s)
    m = MatMul (r, w2)
    y = Add (m, b2)
}}"""
DATA, TEST = examples(48), examples(17, 5)


class Listening(Watcher):
    """Keeps what it is told."""

    def __init__(self):
        self.lines = []

    def said(self, line):
        self.lines.append(line)


def net(fixed, count, batch="batch", shape=None):
    """A model that computes `count` examples, whatever its input says."""
    rng = np.random.default_rng(2)
    held = weights() | {
        "wx": rng.standard_normal((1, 6, 6)).astype("f"),
        "wh": rng.standard_normal((1, 6, 6)).astype("f"),
        "first": rng.standard_normal((1, count, 6)).astype("f"),
        "shape": np.array(shape or (count, 6)), "lead": np.array([count, -1]),
        "front": np.array([0]), "axes": np.array([0, 1]),
    }  # fmt: skip
    return gt.load(build(BODY.format(batch=batch, fixed=FIXED[fixed]), **held))


def trained(model, heard=None, **options):
    """Losses, evaluations and weights after three steps."""
    with gt.Trainer(model, steps=3, lr=0.1, wrt=["w*", "b*"], kernels="numpy", **options) as it:
        history = it.fit(DATA, evaluate=TEST, watcher=heard or Listening())
        return history.losses, history.evaluations, it.session.values()


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", sampled(range(12), 4))
def test_a_number_in_nodes_is_as_good_as_one_in_inputs(case):
    """As many steps of parts, evaluations filled up, no smaller parts, the same bits."""
    rng = np.random.default_rng(case)
    fixed = list(FIXED)[case % len(FIXED)]
    count = int(rng.choice([2, 3, 5, 8]))
    options = {"optimizer": str(rng.choice(["sgd", "adamw"])), "metric": ("loss", "accuracy")}
    if rng.random() < 0.7:
        options["batch"] = count * int(rng.integers(1, 4))
    if rng.random() < 0.3:
        options["memory"] = 1 << 30
    heard = Listening()
    found = trained(net(fixed, count), heard, **options)
    expected = trained(net(fixed, count, batch=count), **options)

    assert any(f"computes {count} examples at a time" in line for line in heard.lines)
    assert found[:2] == expected[:2]
    for name, array in expected[2].items():
        np.testing.assert_array_equal(found[2][name], array)


@pytest.mark.parametrize("fixed", FIXED)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 4, "micro_batches": 2}, "4 examples in 2 parts are 2 each, the model takes 4"),
        ({"batch": 6}, "takes 4 examples at a time, of which 6 is no sum: give a batch of 4"),
    ],
)
def test_other_numbers_are_refused_with_what_to_do(fixed, options, said):
    with pytest.raises(UsageError, match=said):
        trained(net(fixed, 4), **options)


def test_a_model_that_fits_no_number_says_what_does_not_fit():
    model = net("a state", 100)
    with pytest.raises(UsageError, match=r"nor any other number that was tried: .*RNN"):
        trained(model, batch=4)


def test_an_open_model_is_left_open():
    heard = Listening()
    trained(net("a shape", 1, shape=(-1, 6)), heard, batch=6, micro_batches=3)

    assert not any("at a time" in line for line in heard.lines)
