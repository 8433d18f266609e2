"""Kernels and runs on a CUDA device: as on the CPU, with the same bits every time."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from graphs import floats, parse

import gradtool as gt
from gradtool.api import model_of
from gradtool.errors import GradtoolError
from gradtool.exec.device import Device, open_device
from gradtool.exec.executor import Executor
from gradtool.exec.measure import check_arena
from gradtool.exec.memory_meter import beside
from gradtool.exec.parameters import parameters_of
from gradtool.exec.run import execute, planned
from gradtool.graph.specs import Spec
from gradtool.ops.index.kernel_accumulate import accumulate, accumulate_planes, assign
from gradtool.workloads.plans import workload, write
from gradtool.workloads.run_options import RunOptions
from gradtool.workloads.strategies import STRATEGIES


@pytest.fixture
def xp():
    """CuPy on a device."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device is visible")
    return cupy


def bits(arrays):
    return {name: np.asarray(array).tobytes() for name, array in arrays.items()}


# ------------------------------------------------------------------------ types of the library


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.int4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, object]
)
def test_a_device_leaves_types_without_arithmetic_to_the_host(dtype):
    spec = Spec((3,), np.dtype(dtype))

    assert not Device("cuda:0", object()).computes(spec)
    assert not Device("cuda:0", object()).computes([Spec((), np.dtype(np.int64)), spec])
    assert Device("cpu", np).computes(spec)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16]
)
def test_a_device_computes_with_the_types_of_numpy_and_bfloat16(dtype):
    assert Device("cuda:0", object()).computes([Spec((3,), np.dtype(dtype)), None])


# --------------------------------------------------------------------------------- scattering

STEPS = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


def one_by_one(step, target, rows, values):
    """What numpy makes of it, a source at a time."""
    for row, value in zip(rows, values, strict=True):
        target[row] = value if step == "assign" else STEPS[step](target[row], value)
    return target


def scattered(xp, step, target, rows, values):
    made, rows, values = xp.asarray(target), xp.asarray(rows), xp.asarray(values)
    if step == "assign":
        assign(xp, made, rows, values)
    else:
        accumulate(xp, step, made, rows, values)
    return made.get()


@pytest.mark.gpu
@pytest.mark.parametrize("step", ["assign", *STEPS])
@pytest.mark.parametrize("width", [(), (1,), (3,), (200,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_sources_of_a_row_are_combined_in_their_order(xp, step, width, dtype):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 7, 500)
    values = rng.uniform(0.5, 2, (500, *width)).astype(dtype)
    target = rng.uniform(0.5, 2, (9, *width)).astype(dtype)

    found = scattered(xp, step, target, rows, values)

    assert found.tobytes() == one_by_one(step, target.copy(), rows, values).tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.bool_, np.complex64])
def test_every_type_of_number_is_added(xp, dtype):
    rows, values = np.arange(60) % 4, np.abs(2 * floats(60, 3)).astype(dtype)
    target = np.zeros((4, 3), dtype)
    found = scattered(xp, "add", target, rows, values)

    np.testing.assert_array_equal(found, one_by_one("add", target, rows, values))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_summed_in_float32_and_rounded_once(xp, dtype):
    values = np.full((4096, 2), 0.001, dtype)
    found = scattered(xp, "add", np.ones((2, 2), dtype), np.zeros(4096, np.int64), values)
    total = dtype(1 + 4096 * np.float32(dtype(0.001)))

    np.testing.assert_array_equal(found, np.array([[total, total], [1, 1]], dtype))


@pytest.mark.gpu
def test_a_maximum_with_nan_is_nan(xp):
    values = np.array([1, np.nan, 3], np.float32)
    found = scattered(xp, "maximum", np.zeros(2, np.float32), np.zeros(3, np.int64), values)

    np.testing.assert_array_equal(found, [np.nan, 0])


@pytest.mark.gpu
def test_planes_and_strided_targets_are_reached(xp):
    rows, values = np.array([2, 0, 2]), floats(4, 3, 5)
    target = xp.zeros((4, 5, 6), np.float32).transpose(0, 2, 1)[:, ::2]
    accumulate_planes(xp, "add", target, xp.asarray(rows), xp.asarray(values))
    expected = np.zeros((4, 3, 5), np.float32)
    accumulate_planes(np, "add", expected, rows, values)

    np.testing.assert_array_equal(target.get(), expected)


@pytest.mark.gpu
def test_many_sources_have_the_same_sum_every_time(xp):
    rng = np.random.default_rng(0)
    rows, values = rng.integers(0, 50, 100_000), rng.standard_normal(100_000).astype(np.float32)
    target = np.zeros(50, np.float32)
    sums = [scattered(xp, "add", target, rows, values).tobytes() for _ in range(5)]

    assert len(set(sums)) == 1


# ---------------------------------------------------------------------------------- gradients

EMBEDDING = """g (int64[64] i, float[5, 8] w) => (y) { e = Gather (w, i) y = Tanh (e) }"""
COLUMNS = """g (float[3, 6, 40] w) => (y) <int64[5] i = {0, 5, -1, 2, 2}> {
    e = Gather <axis = 1> (w, i) y = Tanh (e)
}"""
POOLS = """g (float[2, 3, 16, 16] w) => (y) {
    m = MaxPool <kernel_shape = [3, 3]> (w) y = Exp (m)
}"""
PRODUCTS = """g (float[6] x, int64[64] i, float[64] w) => (y) {
    s = ScatterElements <reduction = "mul"> (x, i, w) y = Tanh (s)
}"""
NOTHING = """g (float[6, 4] w) => (y) <int64[0] i = {}> { e = Gather (w, i) y = Tanh (e) }"""
LEAST = """g (float[6, 40] w) => (y) <int64[1] a = {1}> { y = ReduceMin (w, a) }"""
NETS = {
    "embedding": (EMBEDDING, {"i": np.arange(64) * 7 % 5}),
    "columns": (COLUMNS, {}),
    "overlapping pools": (POOLS, {}),
    "scattered products": (PRODUCTS, {"x": np.ones(6, np.float32), "i": np.arange(64) % 6}),
    "nothing chosen": (NOTHING, {}),
    "least of rows": (LEAST, {}),
}


@pytest.fixture(params=NETS)
def net(request):
    text, feeds = NETS[request.param]
    return gt.grad(parse(text, "w"), loss="sum:y", wrt=["w"]), feeds


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
def test_gradients_agree_with_those_of_the_cpu(net):
    training, feeds = net
    mine, theirs = (gt.run(training, feeds, device=d).gradients["w"] for d in ("cuda", "cpu"))

    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
def test_a_run_has_the_same_bits_every_time_and_needs_no_dead_buffer(net):
    training, feeds = net
    runs = [bits(gt.run(training, feeds, device="cuda").gradients) for _ in range(3)]

    assert runs[0] == runs[1] == runs[2]
    model = model_of(training)
    executor = Executor(planned(model, {}), open_device("cuda"), parameters_of(model))
    for name, array in feeds.items():
        executor.set_input(name, array)
    check_arena(executor)


DEEP = """g (int64[256] i, float[9, 32] e, float[32, 32] v, float[32, 32] w) => (y) {
    x = Gather (e, i)
    a = MatMul (x, v) b = Gelu (a) c = Tanh (b) d = Gelu (c) f = Tanh (d)
    h = MatMul (f, w) k = Gelu (h) l = Tanh (k) m = Gelu (l) n = Tanh (m)
    y = MatMul (n, v)
}"""


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("name", ["mirror", "segments"])
def test_every_plan_has_the_bits_of_keeping_everything(name):
    model = model_of(gt.grad(parse(DEEP, "e v w"), loss="mean:y"))
    feeds = {"i": np.arange(256) * 7 % 9}
    work = workload(model)
    kept = execute(model, feeds, RunOptions(device="cuda"))
    found = execute(
        write(work, STRATEGIES[name](work)), feeds, RunOptions(device="cuda", check_arena=True)
    )

    assert bits(found.gradients) == bits(kept.gradients)


# ------------------------------------------------------------------------------------- memory


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize(
    "text",
    [
        "g (float[512, 512] w) => (y) { a = Exp (w) b = Tanh (a) c = Gelu (b) y = Relu (c) }",
        "g (float[512, 512] w, float[512] b) => (y) { m = MatMul (w, w) y = Add (m, b) }",
        "g (float[64, 512] w, float[512] s) => (y) { y = LayerNormalization (w, s) }",
        "g (float[8, 64, 64] w) => (y) { t = Transpose <perm = [0, 2, 1]> (w) y = MatMul (t, w) }",
        """g (float[2, 8, 32, 32] w, float[8, 8, 3, 3] k) => (y) {
            y = Conv <pads = [1, 1, 1, 1]> (w, k)
        }""",
    ],
)
def test_a_step_takes_next_to_nothing_beside_its_arena(text):
    training = gt.grad(parse(text, "w"), loss="mean:y", wrt=["w"])
    result = gt.run(training, device="cuda", measure=True, copy=False)

    assert result.measurement is not None
    assert result.measurement.high_water <= result.measurement.planned
    assert result.measurement.outside <= 2**18


@pytest.mark.gpu
def test_what_is_taken_of_the_memory_of_a_device_is_counted(xp):
    before = xp.zeros(1000, np.float32)
    with beside(Device("cuda:0", xp)) as meter:
        del before
        held = xp.zeros(1 << 20, np.uint8)
        gone = xp.zeros(1 << 20, np.uint8)
        assert meter.held == 2 << 20
        del gone
        assert (meter.held, meter.most) == (1 << 20, 2 << 20)
        meter.restart()
        assert meter.most == 1 << 20
        assert held.nbytes == meter.held


# ----------------------------------------------------------------------------------- indices

FAR = {
    "Gather": (EMBEDDING, "w", {"i": np.full(64, 5)}),
    "an index from the end": (EMBEDDING, "w", {"i": np.full(64, -6)}),
    "GatherElements": (
        "g (int64[2, 3] i, float[2, 5] w) => (y) { y = GatherElements <axis = 1> (w, i) }",
        "w",
        {"i": np.array([[0, 1, 2], [3, 4, 5]])},
    ),
    "a label": (
        "g (float[4, 3] w, int64[4] t) => (y) { y = SoftmaxCrossEntropyLoss (w, t) }",
        "w",
        {"t": np.array([0, 1, 2, 3])},
    ),
}


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("case", FAR)
def test_indices_out_of_bounds_are_found_before_anything_is_updated(case):
    text, weight, feeds = FAR[case]
    training = gt.grad(parse(text, weight), loss="sum:y", wrt=[weight], optimizer="sgd")

    with gt.Session(training, device="cuda") as session:
        before = session.values(weight)[weight]
        with pytest.raises(GradtoolError, match=r"an axis of 5|3 classes"):
            session.step(feeds)
        assert session.values(weight)[weight].tobytes() == before.tobytes()


# -------------------------------------------------------------------------------------- host


def both(text, **feeds):
    model = parse(text)
    return [gt.run(model, feeds, device=device).outputs["y"] for device in ("cuda", "cpu")]


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("to", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "BFLOAT16"])
def test_types_that_cupy_lacks_are_converted_on_the_host(to):
    number = ir.DataType[to].value
    mine, theirs = both(
        f"g (float[4, 6] x) => (y) {{ c = Cast <to = {number}> (x) t = Transpose (c) "
        "y = Cast <to = 1> (t) }",
        x=floats(4, 6),
    )

    assert mine.tobytes() == theirs.tobytes()


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("body", ["t, i = TopK (b, k)", "t = ReduceProd (b, a)", "t = Unique (b)"])
def test_bfloat16_is_sorted_and_multiplied(body):
    mine, theirs = both(
        "g (float[4, 6] x) => (y) <int64[1] k = {3}, int64[1] a = {1}> "
        f"{{ b = Cast <to = 16> (x) {body} y = Cast <to = 1> (t) }}",
        x=floats(4, 6),
    )

    np.testing.assert_allclose(mine, theirs, rtol=2e-2)


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
def test_text_is_worked_on_by_the_host():
    words = np.array(["ab", "b", "abb"], object)
    mine, theirs = both(
        'g (string[3] x) => (y) { m = RegexFullMatch <pattern = "ab+"> (x) y = Not (m) }', x=words
    )

    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
def test_a_seeded_dropout_has_the_mask_of_the_cpu():
    mine, theirs = both(
        "g (float[200, 300] x) => (y) <float r = {0.5}, bool t = {1}> "
        "{ y = Dropout <seed = 3> (x, r, t) }",
        x=floats(200, 300),
    )

    np.testing.assert_allclose(mine, theirs, rtol=1e-6)


WATCHED = {
    "a constant that stays on the host": """g (float[3, 4] x) => (y)
        <int64[4] p = {0, 1, 0, 1}, float v = {0.5}> { y = Pad (x, p, v) }""",
    "a type that CuPy lacks": """g (float[3, 4] x) => (y) {
        c = Cast <to = 17> (x) t = Transpose (c) y = Cast <to = 1> (t)
    }""",
    "a type that CuPy lacks, of unknown size": """g (float[3, 4] x) => (y) {
        n = NonZero (x) f = Cast <to = 1> (n) c = Cast <to = 17> (f) t = Transpose (c)
        y = Cast <to = 1> (t)
    }""",
}


@pytest.mark.gpu
@pytest.mark.usefixtures("xp")
@pytest.mark.parametrize("name", WATCHED)
def test_a_watched_step_reads_what_lies_on_the_host(name):
    feeds = {"x": floats(3, 4)}
    found = gt.run(parse(WATCHED[name]), feeds, device="cuda", check_nan=True).outputs["y"]

    assert found.tobytes() == gt.run(parse(WATCHED[name]), feeds).outputs["y"].tobytes()
