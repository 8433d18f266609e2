import json

import numpy as np
from conftest import TINY, tiny_weights

from gradtool.program import profile


def test_gradients_are_those_of_the_formula(run, tiny_model, tiny_inputs, tmp_path):
    outcome = run(
        "run", tiny_model, "--inputs", tiny_inputs, "--device", "cpu", "--save-grads", "g.npz"
    )

    assert outcome.code == 0
    x, w = np.ones((2, 8), np.float32), tiny_weights()["w"]
    expected = np.exp(x @ w)
    with np.load(tmp_path / "g.npz") as found:
        assert sorted(found.files) == ["b", "w"]
        np.testing.assert_allclose(found["b"], expected.sum(0), rtol=1e-5)
        np.testing.assert_allclose(found["w"], x.T @ expected, rtol=1e-5)


def test_other_outputs_have_a_file_of_their_own(run, tiny_model, tiny_inputs, tmp_path):
    run("run", tiny_model, "--inputs", tiny_inputs, "--save-outputs", "o.npz")

    with np.load(tmp_path / "o.npz") as found:
        assert found.files == ["loss"]


def test_a_list_of_names_and_force_as_scripts_use_them(run, tiny_model, tiny_inputs, tmp_path):
    (tmp_path / "names").write_text("w\n")
    (tmp_path / "g.npz").touch()
    assert run("grad", tiny_model, "-o", "t.onnx", "--wrt", "@names").code == 0

    outcome = run(
        "run", tiny_model, "--device", "cpu", "--inputs", tiny_inputs, "--wrt", "@names",
        "--save-grads", "g.npz", "--save-outputs", "o.npz", "--force",
    )  # fmt: skip

    assert outcome.code == 0
    with np.load(tmp_path / "g.npz") as found:
        assert found.files == ["w"]


def test_a_training_graph_runs_as_it_is(run, tiny_model):
    run("grad", tiny_model)

    one = json.loads(run("run", tiny_model, "--dim", "batch=2", "--format", "json").out)
    two = json.loads(run("run", "tiny.grad.onnx", "--dim", "batch=2", "--format", "json").out)

    assert one["loss"] == two["loss"]
    assert one["gradients"] == two["gradients"]


def test_it_says_where_it_ran(run, tiny_model):
    outcome = run("run", tiny_model, "--dim", "batch=2", "--device", "cpu")

    assert " on cpu\n" in outcome.out


def test_measured_is_printed_beside_planned(run, tiny_model):
    outcome = run("run", tiny_model, "--dim", "batch=2", "--measure")

    assert outcome.code == 0
    assert "measured " in outcome.out
    assert " planned (" in outcome.out


def test_the_seed_decides_random_inputs(run, tiny_model):
    def loss(seed):
        command = ("run", tiny_model, "--batch", "2", "--seed", seed, "--format", "json")
        return json.loads(run(*command).out)["loss"]

    assert loss(1) == loss(1)
    assert loss(1) != loss(2)


def test_interior_values_are_fetched_without_gradients(run, tiny_model, tiny_inputs, tmp_path):
    outcome = run(
        "run", tiny_model, "--inputs", tiny_inputs, "--device", "cpu", "--fetch", "h", "--fetch",
        "e", "--save-outputs", "o.npz",
    )  # fmt: skip

    assert outcome.code == 0
    assert "loss:" not in outcome.err
    assert "gradient of" not in outcome.out
    with np.load(tmp_path / "o.npz") as found:
        assert sorted(found.files) == ["e", "h"]
        np.testing.assert_allclose(found["h"], np.ones((2, 8)) @ tiny_weights()["w"], rtol=1e-5)


def test_a_gradient_is_fetched_alone(run, tiny_model, tiny_inputs):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--fetch", "w_*", "--format", "json")

    document = json.loads(outcome.out)
    assert outcome.code == 0
    assert list(document["gradients"]) == ["w"]
    assert document["outputs"] == {}
    assert document["loss"] is None


def test_fetched_values_are_listed(run, tiny_model, tiny_inputs):
    outcome = run("run", tiny_model, "--inputs", tiny_inputs, "--fetch", "[hs]")

    assert [line.split()[0] for line in outcome.out.splitlines() if " 2×4 " in line] == ["h", "s"]


def test_what_cannot_be_fetched_is_an_error(run, tiny_model):
    outcome = run("run", tiny_model, "--fetch", "w_gard")

    assert outcome.code == 2
    assert "--fetch w_gard: no such value; did you mean 'w_grad'?" in outcome.err


def test_dropout_that_trains_is_compared_with_the_mask_fixed(run, model, tiny_inputs):
    path = model(TINY.replace("e = Exp (s)", "e = Dropout (s)"), "drops.onnx", **tiny_weights())
    outcome = run("run", path, "--inputs", tiny_inputs, "--train-mode", "--verify", "finite-diff",
                  "--device", "cpu")  # fmt: skip

    assert outcome.code == 0
    assert "2 gradients agree with finite differences" in outcome.err


def test_a_random_model_is_not_compared_with_itself(run, model, tiny_inputs):
    text = TINY.replace("e = Exp (s)", "n = RandomNormalLike (s) r = Mul (s, n) e = Exp (r)")
    path = model(text, "random.onnx", **tiny_weights())
    outcome = run("run", path, "--inputs", tiny_inputs, "--verify", "finite-diff",
                  "--device", "cpu")  # fmt: skip

    assert outcome.code == 2
    assert "1 RandomNormalLike" in outcome.err.splitlines()[-1]


def test_a_file_named_twice_or_like_a_model_is_refused_before_the_step_runs(run, tiny_model):
    twice = run("run", tiny_model, "--save-grads", "a.npz", "--save-outputs", "a.npz", "--force")
    model = run("run", tiny_model, "--profile", "other.onnx", "--force")

    assert (twice.code, twice.out) == (model.code, model.out) == (2, "")
    assert twice.err == "gradtool: --save-grads and --save-outputs name the same file\n"
    assert "that is the name of a model; name another file" in model.err


def test_the_help_says_how_many_steps_are_timed_at_least(run):
    words = " ".join(run("run", "--help").out.split())

    assert f"--profile, --trace and --html time at least {profile.REPEATS}, once warm." in words
