"""Selectors take only what can be meant: each kind of tensor, by glob and by name, in each mode."""

from __future__ import annotations

import json

import numpy as np
import pytest
from states import CLOSED, NAMED, OPEN, SIZE, globs, network

import gradtool as gt
from gradtool.errors import UsageError

MODES = [
    {}, {"train_mode": True}, {"optimizer": "adamw"}, {"optimizer": "sgd", "train_mode": True},
]  # fmt: skip
HEAD = ["head.*"]


def differentiated(net, **options):
    return gt.grad(gt.load(net.model()), loss="mse", **options)


def taken(training):
    return {*training.gradients, *training.updates}


def refused(net, **options):
    with pytest.raises(UsageError) as error:
        differentiated(net, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_glob_takes_all_that_is_trained_and_nothing_else(seed, mode):
    net = network(seed)
    training = differentiated(net, wrt=HEAD, **mode)

    assert taken(training) == {n for n, (to, _) in net.kinds.items() if to == OPEN}
    state = json.loads(training.model.metadata_props.get("gradtool.state", "{}"))
    assert not {n for n in state if n in net.kinds and n not in training.updates} - {
        "head.bn.mean", "head.bn.var"
    }  # fmt: skip


def held_against(net, name, mode):
    """A tensor that is asked for by `--wrt` and `--no-grad`, by its name and by globs of it."""
    to, said = net.kinds[name]
    if to == CLOSED:
        assert f"--wrt {name}: {name!r} is {said}" in refused(net, wrt=[name], **mode)
        assert f"--no-grad {name}: {name!r} is {said}" in refused(net, no_grad=[name], **mode)
    else:
        assert name in taken(differentiated(net, wrt=[name], **mode))
        assert name not in taken(differentiated(net, no_grad=[name], **mode))
    for glob in globs(name):
        if to == OPEN:
            assert taken(differentiated(net, wrt=[glob], **mode)) == {name}
            continue
        for flag, option in (("--wrt", "wrt"), ("--no-grad", "no_grad")):
            told = refused(net, **{option: [glob]}, **mode)
            assert told.startswith(f"{flag} {glob}: a glob takes none of what it matches: {name} (")
            assert f"({said})" in told
            assert ("give the full name" in told) == (to == NAMED)


KINDS = list(network(0).kinds)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KINDS)
def test_each_kind_is_taken_by_what_may_mean_it(name):
    number = KINDS.index(name)
    held_against(network(number), name, MODES[number % len(MODES)])


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(5))
def test_each_kind_in_each_mode(seed, mode):
    net = network(seed)
    for name in net.kinds:
        held_against(net, name, mode)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KINDS)
def test_groups_of_an_optimizer_tell_what_they_match(name):
    net = network(KINDS.index(name))
    options = {"optimizer": "adamw", "wrt": HEAD}
    to, said = net.kinds[name]
    for pattern in (name, *globs(name)):
        for option, given in (("no_decay", pattern), ("lr_scale", f"{pattern}=0.5")):
            if to == OPEN:
                assert name in differentiated(net, **options, **{option: [given]}).updates
                continue
            flag = f"--{option.replace('_', '-')} {pattern}"
            told = f"{flag}: nothing of what it matches is updated: {name} ({said})"
            assert told in refused(net, **options, **{option: [given]})
    told = refused(net, **options, no_decay=["body.*"])
    assert told.startswith("--no-decay body.*: ")
    assert told.endswith("body.w (not trained)")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KINDS)
def test_adapters_stand_beside_weights_that_are_trained(name):
    net = network(KINDS.index(name))
    for pattern in (name, *globs(name)):
        if name in ("head.w", "head.q.codes"):
            found = differentiated(net, lora=2, lora_target=[pattern]).gradients
            assert set(found) == {f"{name}.lora_A", f"{name}.lora_B"}
            continue
        told = refused(net, lora=2, lora_target=[pattern])
        gone = name in ("head.q.scale", "head.q.zero")  # into the product that decodes
        why = "no such weight of " if gone else "no adapter beside "
        assert told.startswith(f"--lora-target {pattern}: {why}")
        assert not gone or "head.q.codes" in told


def test_gradients_of_inputs_are_those_of_floats():
    net = network(3)

    assert differentiated(net, input_grad=["*"]).gradients["x"] == "x_grad"
    for pattern in ("head.w", "head.*", "*mask"):
        told = refused(net, input_grad=[pattern])
        assert told.startswith(f"--input-grad {pattern}: no input; --wrt is for initializers: ")


@pytest.mark.parametrize("train_mode", [False, True])
def test_statistics_move_by_batches_alone(train_mode):
    """Whatever is trained beside them: the batch decides their next values, or nothing does."""
    net = network(0)
    x = np.random.default_rng(0).normal(size=(6, SIZE, SIZE)).astype("f")
    found = []
    for wrt in (None, HEAD):
        training = differentiated(net, wrt=wrt, train_mode=train_mode, optimizer="sgd")
        labels = next(v for v in training.model.graph.inputs if v.name in training.labels)
        shape = [6 if not isinstance(n, int) else n for n in labels.shape]
        with gt.Session(training) as session:
            session.step({"x": x, labels.name: np.zeros(shape, "f"), "lr": np.float32(0.1)})
            found.append(session.values("head.bn.mean", "head.bn.var"))
    for name, value in found[0].items():
        np.testing.assert_array_equal(found[1][name], value)
        assert np.array_equal(value, net.tensors[name]) is not train_mode


def test_a_scale_is_trained_by_its_full_name():
    net = network(0)
    training = differentiated(net, wrt=["head.q.scale", "head.b"], optimizer="sgd")

    assert set(training.updates) == {"head.q.scale", "head.b"}


def test_a_glob_of_nodes_has_a_colon():
    """`n1:*` are results of a node; `n*` are values of such names, of which there is none."""
    net = network(0)

    assert "--no-grad n*: no such value" in refused(net, no_grad=["n*"])
    assert "body.w" not in differentiated(net, no_grad=["n0:*"]).gradients
