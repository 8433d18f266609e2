from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from graphs import floats, parse
from programs import program

import gradtool as gt
from gradtool.api import model_of
from gradtool.errors import DeviceError, GradtoolError, MissingData, UsageError
from gradtool.exec.device import open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import beside_arena, check_arena, fixed_bytes, high_water, measure
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import planned
from gradtool.ops import kernels as registry
from gradtool.planning.no_recompute import no_recompute
from gradtool.program.bind_dims import bound

LAYER = """g (float[N, 8] x, float[8, 16] w, float[16] b) => (y) {
    [mm] h = MatMul (x, w) [add] a = Add (h, b) [tanh] t = Tanh (a) [soft] y = Softmax (t)
}"""


@pytest.fixture(scope="module")
def layer():
    return gt.grad(parse(LAYER, "w b"), loss="mean:y")


def executor_of(graph, **feeds):
    model = model_of(graph)
    plan = planned(model, {"N": feeds["x"].shape[0]})
    made = Executor(plan, open_device("cpu"), parameters_of(model))
    for name, array in feeds.items():
        made.set_input(name, array)
    return made


def by_hand(*steps, feeds=None, **options):
    made = program(*steps, **options)
    executor = Executor(no_recompute(made), open_device("cpu"), {}.__getitem__)
    for name, array in (feeds or {}).items():
        executor.set_input(name, array)
    return executor


RAMP = np.linspace(-1, 1, 16, dtype=np.float32)


# ------------------------------------------------------------------------------- results


def test_the_same_step_gives_the_same_bits_every_time(layer):
    executor = executor_of(layer, x=floats(4, 8))
    results = []
    for _ in range(3):
        executor.step()
        results.append({k: v.tobytes() for k, v in executor.gradients().items()})

    assert results[0] == results[1] == results[2]
    again = executor_of(layer, x=floats(4, 8))
    again.step()
    assert {k: v.tobytes() for k, v in again.gradients().items()} == results[0]


def test_results_do_not_depend_on_what_the_arena_held(layer):
    executor = executor_of(layer, x=floats(4, 8))
    executor.step()
    before = {k: v.tobytes() for k, v in executor.gradients().items()}
    executor.arena[fixed_bytes(executor) :] = 0xFF
    executor.step()

    assert {k: v.tobytes() for k, v in executor.gradients().items()} == before


def test_results_are_copies(layer):
    executor = executor_of(layer, x=floats(4, 8))
    executor.step()
    first = executor.gradients()["w"].copy()
    held = executor.gradients()["w"]
    executor.set_input("x", 2 * floats(4, 8))
    executor.step()

    assert np.array_equal(held, first)
    assert not np.array_equal(executor.gradients()["w"], first)


def test_outputs_are_what_is_no_gradient(layer):
    executor = executor_of(layer, x=floats(4, 8))
    executor.step()

    assert list(executor.outputs()) == ["y", "loss"]
    assert list(executor.gradients()) == ["w", "b"]


# -------------------------------------------------------------------------------- memory


def test_the_arena_has_the_planned_size_and_lies_on_a_line(layer):
    executor = executor_of(layer, x=floats(4, 8))

    assert executor.arena.nbytes == executor.plan.peak
    assert executor.device.address(executor.arena) % 64 == 0
    assert all(executor.device.address(a) % 4 == 0 for a in executor.arrays if a is not None)


def test_the_high_water_mark_is_the_planned_peak(layer):
    """But for the padding of the last line, which nobody writes."""
    for rows in (1, 16, 64):
        executor = executor_of(layer, x=floats(rows, 8))
        top = max(b.offset + b.bytes for b in executor.plan.buffers)

        assert top == executor.plan.peak
        assert top - 64 < high_water(executor) <= top


def test_the_high_water_mark_sees_a_write_beyond_the_plan():
    """A step that writes where nothing is planned is found by the pattern."""
    executor = by_hand("a = Exp x", "y = Neg a", outputs="y", feeds={"x": RAMP})
    executor.arena = np.zeros(executor.plan.peak + 64, np.uint8)
    stray = executor.arena[executor.plan.peak :]
    executor.calls.append(lambda: stray.fill(7))

    assert high_water(executor) == executor.plan.peak + 64


def test_a_step_takes_nothing_of_size_beside_the_arena_and_keeps_nothing(layer):
    executor = executor_of(layer, x=floats(512, 8))
    outside, retained = beside_arena(executor)

    assert outside < 64 * 1024 < executor.plan.peak
    assert retained < 1024


def test_a_measurement_compares_plan_and_truth(layer):
    measured = measure(executor_of(layer, x=floats(64, 8)), repeat=2)

    assert measured.high_water <= measured.planned < measured.high_water + 64
    assert measured.peak == measured.high_water + measured.outside
    assert measured.dynamic == 0
    assert measured.seconds > 0


# --------------------------------------------------------------------------- check_arena


def test_a_sound_plan_passes(layer):
    check_arena(executor_of(layer, x=floats(4, 8)))


CHAIN = ("a = Exp x", "b = Neg x", "c = Add a b", "y = Mul c b")


def broken(**changes):
    """The executor of a chain whose buffer of one value is changed."""
    ((name, change),) = changes.items()
    plan = no_recompute(program(*CHAIN, outputs="y"))
    by_name = {b.name: b for b in plan.buffers}
    altered = dataclasses.replace(by_name[name], **change(by_name))
    buffers = tuple(altered if b is by_name[name] else b for b in plan.buffers)
    executor = Executor(
        dataclasses.replace(plan, buffers=buffers), open_device("cpu"), {}.__getitem__
    )
    executor.set_input("x", RAMP)
    return executor


def test_buffers_that_overlap_while_both_live_are_found():
    executor = broken(b=lambda all_: {"offset": all_["a"].offset + 32})

    with pytest.raises(GradtoolError, match="'a' and 'b' overlap while both live: a planning bug"):
        check_arena(executor)


def test_a_buffer_that_dies_too_early_is_found():
    executor = broken(b=lambda _: {"last": 2})

    with pytest.raises(GradtoolError, match="'y' changed when dead buffers were overwritten"):
        check_arena(executor)


def test_an_output_that_dies_before_the_end_is_found():
    plan = no_recompute(program("y = Exp x", "z = Neg x", "a = Abs z", outputs="y z"))
    buffers = tuple(
        dataclasses.replace(b, last=0, offset=64) if b.name == "y"
        else dataclasses.replace(b, offset=64) if b.name == "a"
        else dataclasses.replace(b, offset=128) if b.name == "z" else b
        for b in plan.buffers
    )  # fmt: skip
    executor = Executor(
        dataclasses.replace(plan, buffers=buffers), open_device("cpu"), {}.__getitem__
    )
    executor.set_input("x", RAMP)
    executor.step()

    assert not np.array_equal(executor.outputs()["y"], np.exp(RAMP))


# ------------------------------------------------------------------------- data-dependent

SPARSE = """g (float[N, 4] x, float[N, 4] w) => (y) {
    h = Mul (x, w)
    m = Greater (h, zero)
    at = NonZero (m)
    rows = Transpose (at)
    picked = GatherND (h, rows)
    e = Exp (picked)
    y = ReduceSum <keepdims = 0> (e)
}"""


@pytest.fixture(scope="module")
def sparse():
    return gt.grad(parse(SPARSE.replace("=> (y) {", "=> (y) <float zero = {0}> {")), wrt=["x", "w"])


def test_values_of_data_dependent_shape_are_computed(sparse):
    x, w = floats(6, 4), floats(6, 4, seed=1)
    result = gt.run(sparse, {"x": x, "w": w})
    mask = x * w > 0

    assert result.loss == pytest.approx(float(np.exp(x * w)[mask].sum()), rel=1e-5)
    np.testing.assert_allclose(
        result.gradients["x"], np.where(mask, np.exp(x * w) * w, 0), rtol=1e-4, atol=1e-6
    )


def test_values_of_data_dependent_shape_are_counted_and_released(sparse):
    x, w = floats(6, 4), floats(6, 4, seed=1)
    executor = executor_of(sparse, x=x, w=w)
    executor.step()
    few = executor.dynamic.peak

    assert executor.dynamic.bytes == 0
    assert executor.dynamic.values == {}
    assert few > int((x * w > 0).sum()) * (8 + 8 + 4)  # both index layouts and the numbers
    executor.set_input("x", w)  # every product is positive: more is found
    executor.step()
    assert executor.dynamic.peak > few


def test_an_output_of_data_dependent_shape_is_held_to_the_next_step():
    model = parse("g (float[N, 4] x) => (at) { b = Cast <to = 9> (x) at = NonZero (b) }")
    executor = executor_of(model, x=np.eye(4, dtype=np.float32))
    for ones in (4, 2):
        x = np.zeros((4, 4), np.float32)
        x[:ones, 0] = 1
        executor.set_input("x", x)
        executor.step()

        assert executor.outputs()["at"].shape == (2, ones)
        assert executor.dynamic.bytes == 2 * ones * 8


# -------------------------------------------------------------------------- simple kernels


@pytest.fixture
def simple_neg(monkeypatch):
    """Neg in the simple style, with a temporary of its own size."""

    def neg(_xp, x):
        shifted = x + 0
        return np.negative(shifted)

    entry = registry.Kernel(
        "",
        "Neg",
        1,
        neg,
        may_inplace=(0,),
        temporaries=lambda x, *, out: x.bytes,  # noqa: ARG005
    )
    monkeypatch.setitem(registry.KERNELS.by_operator(), ("", "Neg"), [entry])


@pytest.mark.usefixtures("simple_neg")
def test_the_copies_of_simple_kernels_are_planned_and_measured():
    model = parse("g (float[N, 1000] x) => (y) { h = Exp (x) n = Neg (h) y = Tanh (n) }")
    executor = executor_of(model, x=floats(100, 1000))
    outside, _ = beside_arena(executor)

    assert executor.plan.scratch == 2 * 400_000
    assert executor.plan.total == executor.plan.peak + 2 * 400_000
    assert 800_000 <= outside <= 800_000 + 4096


@pytest.mark.usefixtures("simple_neg")
def test_a_simple_kernel_gives_the_planned_type_and_place():
    x = floats(3, 5)
    model = parse("g (float[N, 5] x) => (y) { h = Exp (x) n = Neg (h) y = Tanh (n) }")

    np.testing.assert_allclose(gt.run(model, {"x": x}).outputs["y"], np.tanh(-np.exp(x)), rtol=1e-5)


# --------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("feeds", "error", "message"),
    [
        ({}, MissingData, "inputs: no input 'x'; it holds nothing"),
        (
            {"y": floats(2, 8)},
            UsageError,
            "inputs: no input or parameter 'y'; the model takes x",
        ),
        (
            {"x": floats(2, 8).astype(np.float64)},
            UsageError,
            "input 'x' is float64, the model takes float32",
        ),
        ({"x": floats(2, 9)}, UsageError, "input 'x' has size 9 on axis 1, the model takes 8"),
        ({"x": floats(8)}, UsageError, r"input 'x' has shape \[8\], the model takes \[N,8\]"),
    ],
)
def test_inputs_that_do_not_fit_are_errors(layer, feeds, error, message):
    with pytest.raises(error, match=message):
        gt.run(layer, feeds)


def test_inputs_that_disagree_about_a_size_are_an_error(sparse):
    with pytest.raises(UsageError, match="input 'w': N is given as 2 and as 3"):
        gt.run(sparse, {"x": floats(2, 4), "w": floats(3, 4)})


def test_an_executor_takes_only_what_it_planned_for(layer):
    executor = executor_of(layer, x=floats(4, 8))

    with pytest.raises(UsageError, match="the model has no input 'z'"):
        executor.set_input("z", floats(4, 8))
    with pytest.raises(UsageError, match=r"has shape \(5, 8\), planned for \(4, 8\)"):
        executor.set_input("x", floats(5, 8))
    with pytest.raises(UsageError, match="'x' is int64, the model takes float32"):
        executor.set_input("x", np.zeros((4, 8), np.int64))


def test_an_input_of_any_layout_is_copied_in(layer):
    x = floats(4, 8)
    executor = executor_of(layer, x=x)
    executor.step()
    expected = executor.gradients()["w"].tobytes()
    executor.set_input("x", np.asfortranarray(x))
    executor.step()

    assert executor.gradients()["w"].tobytes() == expected


def test_open_sizes_are_an_error(layer):
    with pytest.raises(UsageError, match="dynamic dimension 'N' has no value; give --dim N=N"):
        gt.plan(layer)
    with pytest.raises(UsageError, match="dynamic dimension 'N' has no value"):
        gt.run(layer, "random")


def test_parameters_without_data_are_an_error():
    model = parse(LAYER, "w b")
    training = gt.grad(model, loss="mean:y")
    training.model.graph.initializers["w"].const_value = None

    assert gt.plan(training, dims={"N": 4}).peak > 0
    with pytest.raises(MissingData, match="initializer 'w' has no data; run needs the weights"):
        gt.run(training, {"x": floats(4, 8)})


def test_an_operator_without_a_kernel_is_an_error():
    model = parse("g (float[3] x) => (y) { a = test.Gate (x) b = test.Gate (a) y = Neg (b) }")
    for node in model.graph:
        node.outputs[0].shape, node.outputs[0].type = model.graph.inputs[0].shape, None
        node.outputs[0].type = model.graph.inputs[0].type

    with pytest.raises(UsageError, match=r"no kernel to run test::Gate \(2 nodes\); try --engine"):
        gt.plan(model)


# -------------------------------------------------------------------------------- devices


def test_without_cupy_the_error_says_what_to_install():
    try:
        import cupy
    except ImportError:
        match = r"cuda:1: CuPy is not installed; install the one .*cupy-cuda12x"
    else:
        if cupy.cuda.is_available():
            pytest.skip("a CUDA device is there")
        match = "cuda:1: no CUDA device is visible; use --device cpu"

    with pytest.raises(DeviceError, match=match):
        open_device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cuda:-1", "", "cpu:0"])
def test_an_unknown_device_is_an_error(name):
    with pytest.raises(UsageError, match="use auto, cpu, cuda or cuda:N"):
        open_device(name)


def test_auto_falls_back_to_the_cpu():
    assert open_device("auto").name in ("cpu", "cuda:0")


# -------------------------------------------------------------------------------- strides


def steps_and_views(text, **dims):
    plan = planned(bound(parse(text), dims), {})
    made = plan.program
    views = {v.name for v in made.values if v.view is not None}
    return [s.op for s in made.steps], views


def test_a_strided_view_is_made_where_every_reader_takes_it():
    ops, views = steps_and_views(
        "g (float[4, 6] x) => (y) { a, b = Split <axis = 1, num_outputs = 2> (x) y = Mul (a, b) }"
    )

    assert ops == ["Mul"]
    assert views == {"a", "b"}


def test_a_reader_that_wants_gapless_arrays_gets_a_copy():
    plain = registry.find("", "Softmax", 20)
    ops, views = steps_and_views(
        """g (float[4, 6] x) => (y) {
            a, b = Split <axis = 1, num_outputs = 2> (x) c = Softmax (a) y = Mul (c, b)
        }"""
    )

    assert plain is not None
    assert not plain.strided
    assert ops == ["Split", "Softmax", "Mul"]
    assert views == set()


def test_an_output_is_never_strided():
    ops, views = steps_and_views(
        "g (float[4, 6] x) => (a, y) { a, b = Split <axis = 1, num_outputs = 2> (x) y = Neg (b) }"
    )

    assert ops == ["Split", "Neg"]
    assert views == set()


def test_rows_of_an_array_are_a_view_for_everybody():
    ops, views = steps_and_views(
        "g (float[4, 6] x) => (y) { a, b = Split <axis = 0, num_outputs = 2> (x) y = Softmax (b) }"
    )

    assert ops == ["Softmax"]
    assert views == {"b"}


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose (x) y = MatMul (t, x)",
        "r = Reshape (x, minus) y = Exp (r)",
        "a, b = Split <axis = 1, num_outputs = 2> (x) y = Add (a, b)",
        "s = Transpose (x) r = Reshape (s, minus) y = Exp (r)",
        "u = Unsqueeze (x, one) e = Identity (u) y = Neg (e)",
        "u = Unsqueeze (x, one) s = Squeeze (u, one) y = Softmax (s)",
        "f = Flatten (x) t = Transpose (f) u = Transpose (t) y = MatMul (u, t)",
    ],
)
def test_views_give_the_same_as_onnxruntime(body):
    from graphs import stock

    head = "g (float[4, 6] x) => (y) <int64[1] minus = {-1}, int64[1] one = {1}>"
    model = parse(f"{head} {{ {body} }}")
    x = floats(4, 6)

    np.testing.assert_allclose(
        gt.run(model, {"x": x}).outputs["y"], stock(model, x=x)["y"], rtol=1e-5, atol=1e-6
    )
