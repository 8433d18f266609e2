"""Frozen weights that steps of native kernels read where they lie in a file beside the model."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from conftest import build, sampled
from native_calls import needs_library

import gradtool as gt
from gradtool.errors import MissingData
from gradtool.exec.process_memory import resident
from gradtool.io.file_tensors import MAPS, SMALL
from gradtool.reports.memory import by_region, plan_json, summary

pytestmark = pytest.mark.skipif(not MAPS, reason="this system maps no files of weights")

TEXT = """net (float[batch, 64] x, float[batch, 512] t) => (float loss) {
    h = MatMul (x, first)
    r = Tanh (h)
    c = MatMul (r, second)
    q = Mul (c, gain)
    d = Sub (q, t)
    e = Mul (d, d)
    loss = ReduceMean <keepdims=0> (e)
}"""
SIZE = {"first": 64 * 512 * 4, "second": 512 * 512 * 4}
BATCH = {"batch": 8}


def weights(rng):
    return {
        "first": rng.standard_normal((64, 512)).astype(np.float32) / 8,
        "second": rng.standard_normal((512, 512)).astype(np.float32) / 20,
        "gain": np.ones(512, np.float32),
    }


def beside(folder, offsets=None, name="net.onnx"):
    """A model whose weights lie beside it, at offsets of our choice, or inside; its batch."""
    rng = np.random.default_rng(7)
    held = weights(rng)
    proto = build(TEXT, **held)
    data = b""
    for tensor in proto.graph.initializer if offsets is not None else ():
        start = offsets.get(tensor.name, -(-len(data) // 64) * 64)
        data = data.ljust(start, b"\0") + tensor.raw_data
        place = {"location": f"{name}.data", "offset": start, "length": len(tensor.raw_data)}
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
    if data:
        (folder / f"{name}.data").write_bytes(data)
    onnx.save(proto, folder / name)
    batch = {
        "x": rng.standard_normal((8, 64)).astype(np.float32),
        "t": rng.standard_normal((8, 512)).astype(np.float32), "lr": np.float32(0.1),
    }  # fmt: skip
    return folder / name, batch


def step_of(path, *wrt):
    return gt.grad(gt.load(path), loss="loss", wrt=list(wrt), optimizer="sgd")


def planned(path, *wrt, kernels="native"):
    return gt.plan(step_of(path, *wrt), dims=BATCH, kernels=kernels)


# ------------------------------------------------------------------------------- plans


def test_a_plan_has_frozen_weights_in_no_arena(tmp_path):
    outside = planned(beside(tmp_path, {})[0], "gain")
    inside = planned(beside(tmp_path, name="inside.onnx")[0], "gain")

    assert outside.mapped == sum(SIZE.values())
    assert outside.total == inside.total - outside.mapped
    assert inside.mapped == 0


def test_what_a_step_trains_is_in_the_arena(tmp_path):
    found = planned(beside(tmp_path, {})[0], "first", "gain")

    assert found.mapped == SIZE["second"]


@pytest.mark.parametrize("kernels", ["numpy", "cupy", "none"])
def test_other_kernels_have_weights_in_the_arena(kernels, tmp_path):
    found = planned(beside(tmp_path, {})[0], "gain", kernels=kernels)

    assert found.mapped == 0


@pytest.mark.parametrize("seed", sampled(range(30)))
def test_weights_that_lie_at_odd_places_are_copied_and_counted(seed, tmp_path):
    rng = np.random.default_rng(seed)
    first = int(rng.integers(0, 4096))
    second = first + SIZE["first"] + int(rng.integers(0, 4096))
    last = second + SIZE["second"] + int(rng.integers(0, 64))
    path, _ = beside(tmp_path, {"first": first, "second": second, "gain": last})
    found = planned(path, "gain")
    inside = planned(beside(tmp_path, name="inside.onnx")[0], "gain")
    fit = {"first": first % 4 == 0, "second": second % 4 == 0}

    assert found.mapped == sum(SIZE[name] for name, fits in fit.items() if fits)
    assert found.total + found.mapped == inside.total


def test_small_weights_are_copied(tmp_path):
    proto = build("net (float[8, 16] x) => (float[8, 16] y) { y = MatMul (x, w) }",
                  w=np.ones((16, 16), np.float32))  # fmt: skip
    onnx.save(proto, tmp_path / "s.onnx", save_as_external_data=True, size_threshold=0)

    assert SMALL >= 16 * 16 * 4
    assert gt.plan(gt.load(tmp_path / "s.onnx"), kernels="native").mapped == 0


def test_reports_have_what_is_mapped_beside_the_peak(tmp_path):
    found = planned(beside(tmp_path, {})[0], "gain")
    rows = by_region(found).rows

    assert [row[0] for row in rows[-2:]] == ["peak", "mapped, read-only"]
    assert rows[-1][1] == "1.12 MiB"
    assert "mapped, read-only: 1.12 MiB" in summary(found)
    assert plan_json(found, "net", {})["mapped_bytes"] == found.mapped
    assert "mapped" in found._repr_html_()


def test_a_plan_of_least_work_keeps_the_weights_where_they_are(tmp_path):
    training = step_of(beside(tmp_path, {})[0], "gain")
    found = gt.recompute(training, "sqrt", dims=BATCH, kernels="native")

    assert found.plan.mapped == sum(SIZE.values())


# --------------------------------------------------------------------------------- steps


def stepped(path, batch, wrt, out=None):
    """Losses of some steps, an evaluation, and the weights saved."""
    with gt.Session(step_of(path, *wrt), kernels="native") as session:
        found = [float(session.step(batch).loss) for _ in range(3)]
        found.append(float(session.evaluate(batch).loss))
        mapped = [plan.mapped for plan in session.plans]
        session.save(out or path.with_name(f"out-{path.name}"))
    return found, mapped


def tensors(path):
    proto = onnx.load(path)
    return {t.name: onnx.numpy_helper.to_array(t).tobytes() for t in proto.graph.initializer}


@needs_library
@pytest.mark.parametrize("wrt", [("gain",), ("first",), ("second", "gain")])
def test_steps_on_mapped_weights_have_the_bits_of_others(wrt, tmp_path):
    path, batch = beside(tmp_path, {"first": 4, "second": 4 * 1023 + SIZE["first"]})
    inside, _ = beside(tmp_path, name="inside.onnx")
    (found, mapped), (other, none) = stepped(path, batch, wrt), stepped(inside, batch, wrt)

    assert found == other
    assert min(mapped) > 0
    assert max(none) == 0
    assert tensors(tmp_path / "out-net.onnx") == tensors(tmp_path / "out-inside.onnx")


@needs_library
def test_what_is_planned_is_what_a_step_takes_beside_the_file(tmp_path):
    path, batch = beside(tmp_path, {})
    found = gt.run(step_of(path, "gain"), batch, kernels="native", measure=True, copy=False)

    assert found.measurement.mapped == sum(SIZE.values())
    assert found.plan.peak >= found.measurement.high_water
    assert found.measurement.outside < 2**15


@needs_library
def test_checks_hold_on_mapped_weights(tmp_path):
    path, batch = beside(tmp_path, {})
    training = gt.grad(gt.load(path), loss="loss", wrt=["first"])
    batch = {name: batch[name] for name in ("x", "t")}
    gt.run(training, batch, kernels="native", check_nan=True, check_arena=True)

    for by in ("finite-diff", "plans"):
        assert gt.verify(training, batch, by=by, kernels="native")


@needs_library
def test_a_mapped_weight_that_is_set_gets_memory_of_its_own(tmp_path):
    path, batch = beside(tmp_path, {})
    inside, _ = beside(tmp_path, name="inside.onnx")
    before, found = (tmp_path / "net.onnx.data").read_bytes(), []
    for each in (path, inside):
        with gt.Session(step_of(each, "gain"), kernels="native") as session:
            other = 2 * session.values("second")["second"]
            losses = [float(session.step(batch).loss)]
            for rate in (1.0, 0.5, 0.5):
                session.set({"second": other}, rate=rate)
                losses += [float(session.step(batch).loss), float(session.evaluate(batch).loss)]
            losses.append(float(session.step({**batch, "second": other / 2}).loss))
            found.append((losses, session.values("second")["second"].tobytes()))

    assert found[0] == found[1]
    assert (tmp_path / "net.onnx.data").read_bytes() == before


@needs_library
@pytest.mark.parametrize("trains_first", [True, False])
def test_a_session_reads_what_another_trains_whose_memory_it_shares(trains_first, tmp_path):
    path, batch = beside(tmp_path, {})
    inside, _ = beside(tmp_path, name="inside.onnx")
    order = [("second",), ("gain",)][:: 1 if trains_first else -1]
    found = []
    for each in (path, inside):
        with gt.Session(step_of(each, *order[0]), kernels="native") as one:
            losses = [float(one.step(batch).loss)]
            with gt.Session(step_of(each, *order[1]), kernels="native", share=one) as other:
                losses += [float(s.step(batch).loss) for _ in range(3) for s in (other, one)]
                losses.append(float(one.evaluate(batch).loss))
        found.append(losses)

    assert found[0] == found[1]


# --------------------------------------------------------------------------------- files


@needs_library
def test_a_result_may_take_the_name_of_the_file_that_is_mapped(tmp_path):
    path, batch = beside(tmp_path, {})
    inside, _ = beside(tmp_path, name="inside.onnx")
    found = []
    for each in (path, inside):
        with gt.Session(step_of(each, "gain"), kernels="native") as session:
            losses = [float(session.step(batch).loss)]
            session.save(each, force=True)
            losses += [float(session.step(batch).loss), float(session.evaluate(batch).loss)]
        found.append(losses)
    other = tmp_path / "net.onnx.data"
    with gt.Session(step_of(beside(tmp_path, {})[0], "gain"), kernels="native") as session:
        before = float(session.step(batch).loss)
        (tmp_path / "new").write_bytes(b"\0" * other.stat().st_size)
        (tmp_path / "new").replace(other)
        after = [float(session.step(batch).loss) for _ in range(2)]

    assert found[0] == found[1]
    assert [before, *after][:2] == found[1][:2]


@needs_library
@pytest.mark.parametrize("size", [0, 4096, 2**19 + 5])
def test_a_file_that_is_cut_while_it_is_mapped_is_refused_in_one_line(size, tmp_path):
    path, batch = beside(tmp_path, {})
    with gt.Session(step_of(path, "gain"), kernels="native") as session:
        session.step(batch)
        os.truncate(tmp_path / "net.onnx.data", size)
        with pytest.raises(MissingData, match=r"net\.onnx\.data: has shrunk while it was read"):
            session.step(batch)
        with pytest.raises(MissingData, match="has shrunk"):
            session.evaluate(batch)


@needs_library
def test_a_file_that_is_written_over_in_place_is_refused(tmp_path):
    path, batch = beside(tmp_path, {})
    data = tmp_path / "net.onnx.data"
    with gt.Session(step_of(path, "gain"), kernels="native") as session:
        session.step(batch)
        with data.open("r+b") as file:
            file.write(b"\1" * 64)
        os.utime(data, ns=(1, 1))
        with pytest.raises(MissingData, match="changed since the model was loaded"):
            session.step(batch)


@needs_library
def test_many_sessions_map_a_file_one_after_the_other(tmp_path):
    path, batch = beside(tmp_path, {})
    for _ in range(3):
        with gt.Session(step_of(path, "gain"), kernels="native") as session:
            session.step(batch)
    maps = Path("/proc/self/maps")
    if maps.exists():
        del session
        gc.collect()
        assert str(tmp_path) not in maps.read_text()


# -------------------------------------------------------------------------------- memory

PROGRAM = """
import json, sys
import numpy as np
import gradtool as gt
step = gt.grad(gt.load(sys.argv[1]), loss="loss", wrt=["gain"], optimizer="sgd")
batch = {"x": np.ones((2, 64), np.float32), "t": np.ones((2, 64), np.float32), "lr": 0.1}
with gt.Session(step, kernels="native") as session:
    for _ in range(3):
        session.step(batch)
    from gradtool.exec.process_memory import resident
    now = resident()
print(json.dumps([now.anonymous, now.of_files]))
"""
MIB = 2**20


@needs_library
@pytest.mark.skipif(resident() is None, reason="needs /proc/self/status")
def test_weights_of_few_bits_and_of_floats_are_pages_of_the_file(tmp_path):
    """A product packs panels while it computes: no copy of its weights is held."""
    text = """<ir_version: 9, opset_import: ["" : 18, "com.microsoft": 1]>
    net (float[batch, 64] x, float[batch, 64] t) => (float loss) {
        h = MatMul (x, wide)
        c = com.microsoft.MatMulNBits <K=262144, N=64, bits=4, block_size=32> (h, codes, scale)
        q = Mul (c, gain)
        d = Sub (q, t)
        loss = ReduceMean <keepdims=0> (d)
    }"""
    k, rng = 262144, np.random.default_rng(0)
    held = {
        "wide": rng.random((64, k), np.float32), "gain": np.ones(64, np.float32),
        "codes": rng.integers(0, 256, (64, k // 32, 16)).astype(np.uint8),
        "scale": rng.random((64, k // 32), np.float32),
    }  # fmt: skip
    proto = build(text.partition(">")[2], text.partition(">")[0].strip() + ">", **held)
    onnx.save(proto, tmp_path / "inside.onnx")
    onnx.save(proto, tmp_path / "beside.onnx", save_as_external_data=True, size_threshold=0)
    found = {
        name: json.loads(subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / f"{name}.onnx")],
            capture_output=True, text=True, check=True,
        ).stdout)
        for name in ("inside", "beside")
    }  # fmt: skip
    size = sum(a.nbytes for a in held.values())

    assert found["inside"][0] - found["beside"][0] > size - 4 * MIB
    assert found["beside"][1] - found["inside"][1] > size - 4 * MIB
