"""The worked examples of `samples/kit`: Python, Node, a page and C++ train to the same losses."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import os
import platform
import shutil
import site
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from browser import Browser, found
from javascript import MODULES, NODE, needs_modules, needs_node, node, printed
from trainings import examples, proto

import gradtool as gt
from gradtool.io import safetensors

pytest.importorskip("onnxruntime")

SAMPLES = Path(__file__).parents[2] / "samples"
STEPS = 50
KITS = {"keep": (), "sqrt": ("--plan", "sqrt", "--batch", "4")}


@pytest.fixture(params=KITS)
def place(request, run, tmp_path):
    """A folder with the examples, a kit of the transformer, and a batch."""
    for path in (
        *(SAMPLES / "kit").glob("*.*"),
        SAMPLES / "transformer.onnx",
        SAMPLES / "transformer.npz",
    ):
        shutil.copy(path, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    made = run("kit", "transformer.onnx", *KITS[request.param])
    assert made.code == 0, made.err
    program("batch.py", "transformer.npz", "batch.safetensors", folder=tmp_path)
    return tmp_path


def program(*words, folder, of=sys.executable):
    """The lines that a program prints."""
    return printed(of, *words, folder=folder).splitlines()


def numbers(lines):
    assert len(lines) == STEPS + 1
    return np.array([float(line.split()[-1]) for line in lines])


def in_python(folder):
    return numbers(
        program("train.py", "transformer.kit", "transformer.npz", "python", folder=folder)
    )


def logits(run, folder, state):
    """What the original file with the weights of a state makes of the batch."""
    import onnxruntime as ort

    outcome = run("kit", "merge", "transformer.kit", state, "-o", "merged.onnx", "--force")
    assert outcome.code == 0, outcome.err
    session = ort.InferenceSession(folder / "merged.onnx")
    with np.load(folder / "transformer.npz") as batch:
        return session.run(["logits"], {"tokens": batch["tokens"]})[0]


def same_state(folder, file):
    """Whether a state is that of Python's run, to a hundredth of what it moved.

    In norm, because the keys' bias has no gradient but rounding, which Adam makes steps of.
    """
    arrays = safetensors.load(folder / file).arrays
    first = safetensors.load(folder / "transformer.kit" / "state.safetensors").arrays
    assert arrays["step"] == STEPS
    moved = distance = 0.0
    for path in sorted((folder / "python").iterdir()):
        name = path.name.partition("-")[2].removesuffix(".bin")
        theirs = np.fromfile(path, arrays[name].dtype).reshape(arrays[name].shape)
        assert (arrays[name] != first[name]).any()
        moved += float(((theirs - first[name]) ** 2).sum())
        distance += float(((theirs - arrays[name]) ** 2).sum())
    assert distance < 1e-4 * moved


@pytest.mark.exhaustive
def test_python_trains_as_a_session_does(run, place):
    found = in_python(place)
    with np.load(place / "transformer.npz") as loaded:
        batch = dict(loaded)
    with gt.Session(gt.grad(gt.load(place / "transformer.onnx"), optimizer="adamw")) as session:
        losses = [float(session.step(batch).loss) for _ in range(STEPS)]
        evaluated = session.evaluate(batch)

    np.testing.assert_allclose(found, [*losses, float(evaluated.loss)], atol=1e-4, rtol=0)
    assert found[STEPS - 1] < 0.1 * found[0]
    assert np.isfinite(logits(run, place, "python")).all()


@pytest.mark.extra
@needs_modules
def test_node_trains_as_python_does(run, place):
    expected = in_python(place)
    lines = program(
        "train.mjs", "transformer.kit", "batch.safetensors", "node.safetensors",
        folder=place, of=NODE,
    )  # fmt: skip

    np.testing.assert_allclose(numbers(lines), expected, atol=1e-4, rtol=0)
    same_state(place, "node.safetensors")
    ours, theirs = logits(run, place, "node.safetensors"), logits(run, place, "python")
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", "c++"), "g++"))), None)
FOLDERS = [SAMPLES / "kit" / "include", *map(Path, (*site.getsitepackages(), "/usr/include"))]


def installed(*patterns):
    """The first file of some patterns below the folders where packages put headers."""
    places = (path for each in FOLDERS for pattern in patterns for path in each.glob(pattern))
    return next(places, None)


ARCHITECTURE = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "none")
LIBRARY = installed("onnxruntime/capi/libonnxruntime.so.*") or next(
    MODULES.glob(f"onnxruntime-node/bin/*/linux/{ARCHITECTURE}/libonnxruntime.so.1"), None
)
HEADERS = (
    installed("onnxruntime_cxx_api.h", "onnxruntime/onnxruntime_cxx_api.h"),
    installed("nlohmann_json/include/nlohmann", "nlohmann"),
)


@pytest.mark.extra
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
@pytest.mark.skipif(LIBRARY is None, reason="no libonnxruntime.so in a package")
@pytest.mark.skipif(None in HEADERS, reason="no headers of onnxruntime or nlohmann-json: .ci/run")
def test_cpp_trains_as_python_does(run, place):
    expected = in_python(place)
    (place / "libonnxruntime.so.1").symlink_to(LIBRARY)
    included = [word for each in HEADERS for word in ("-isystem", each.parent)]
    warned = printed(
        COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", *included, "train.cpp",
        place / "libonnxruntime.so.1", f"-Wl,-rpath,{place}", "-o", "train", folder=place,
    )  # fmt: skip
    lines = program("transformer.kit", "batch.safetensors", "cpp", folder=place, of=place / "train")

    assert not warned
    np.testing.assert_allclose(numbers(lines), expected, atol=1e-4, rtol=0)
    ours, theirs = logits(run, place, "cpp"), logits(run, place, "python")
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.fixture
def address(place):
    """Where the folder is served."""
    handler = functools.partial(Quiet, directory=place)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass


@pytest.mark.sample(1, 2.5)
@pytest.mark.extra
@needs_modules
@pytest.mark.skipif(found() is None, reason="no Chromium on this machine")
def test_a_page_trains_as_python_does(run, place, address, tmp_path_factory):
    expected = in_python(place)
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.visit(f"{address}/index.html")
        told = browser.value("window.training")
        shown = browser.texts("#losses li")
        own = browser.value("performance.getEntriesByType('resource').map(({ name }) => name)")
        trained = browser.value("""fetch(document.querySelector("#trained").href)
            .then((answer) => answer.bytes()).then((bytes) => bytes.toBase64())""")
        requests, complaints = browser.requests(), browser.complaints()
    finally:
        browser.close()
    (place / "page.safetensors").write_bytes(base64.b64decode(trained))

    np.testing.assert_allclose([*told["losses"], told["evaluated"]], expected, atol=1e-4, rtol=0)
    np.testing.assert_allclose([float(text) for text in shown], expected[:-1], atol=1e-4, rtol=0)
    same_state(place, "page.safetensors")
    ours, theirs = logits(run, place, "page.safetensors"), logits(run, place, "python")
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3)
    assert [c["params"] for c in complaints] == []
    assert all(url.startswith((address, f"blob:{address}")) for url in requests)
    assert own
    assert not any(url.endswith((".wasm", ".onnx")) for url in own)  # a worker has its own thread


TYPES = ("bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32",
         "uint64", "int64", "float64")  # fmt: skip
NUMBERS = {"bool": [0, 1], "u": [0, 1, 200], "i": [0, 1, -100],
           "f": [0, 1, -2.5, 1e-3, 65504, 6e-8, 1e-5, 0.1]}  # fmt: skip
SWEEP = """
import { readFile, writeFile } from "node:fs/promises";
import { Kit, readTensors, writeTensors } from "./kit.mjs";
class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const manifest = JSON.parse(await readFile("manifest.json"));
const ort = { Tensor };
const kit = Object.assign(new Kit(), { ort, manifest });
const made = kit.scalars(manifest.step);
for (const [name, values] of Object.entries(JSON.parse(await readFile("numbers.json")))) {
  made[name] = kit.tensor(name, values, [values.length]);
}
const file = writeTensors(made);
await writeFile("made.safetensors", writeTensors(readTensors(ort, file.buffer)));
"""


@needs_node
def test_node_makes_tensors_of_every_type(tmp_path):
    """As an input, as labels and as a default, such as a learning rate or a seed; bit for bit."""
    kinds = {t: NUMBERS.get(t) or NUMBERS[np.dtype(t).kind] for t in TYPES}
    inputs = [{"name": f"default_{t}", "type": t, "default": n[-1]} for t, n in kinds.items()]
    inputs += [{"name": t, "type": t} for t in TYPES]
    manifest = {"step": {"inputs": inputs}, "eval": {"inputs": []}, "optimizer": {"inputs": {}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "numbers.json").write_text(json.dumps(kinds))
    node(SWEEP, tmp_path)

    made = safetensors.load(tmp_path / "made.safetensors").arrays
    assert len(made) == 2 * len(TYPES)
    for kind, numbers in kinds.items():
        expected = np.array(numbers, np.float64 if kind[0] == "f" else np.int64).astype(kind)
        assert made[kind].dtype == made[f"default_{kind}"].dtype == expected.dtype
        np.testing.assert_array_equal(made[kind], expected)
        np.testing.assert_array_equal(made[f"default_{kind}"], expected[-1])


@pytest.mark.extra
@needs_modules
def test_node_trains_a_kit_that_takes_whole_numbers(run, tmp_path, model):
    """Dropout's seed, step and part are int64 inputs with a default, labels are int64 as well."""
    model(proto("normed"), "net.onnx")
    for path in (SAMPLES / "kit").glob("*.mjs"):
        shutil.copy(path, tmp_path)
    (tmp_path / "node_modules").symlink_to(MODULES)
    assert run("kit", "net.onnx", "--train-mode").code == 0
    safetensors.save(tmp_path / "batch.safetensors", examples(8))
    lines = program("train.mjs", "net.kit", "batch.safetensors", "node.safetensors",
                    folder=tmp_path, of=NODE)  # fmt: skip

    assert np.isfinite(numbers(lines)).all()
