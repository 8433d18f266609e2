"""The npm package `gradtool-kit`: what it computes, its types, and how it comes into a kit."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from javascript import KIT, MODULES, needs_modules, needs_node, node, printed
from kits import batch_of, net

import gradtool
from gradtool.io import safetensors
from gradtool.kit.manifest import SCHEMA_VERSION
from gradtool.training.schedules import schedule

DOCUMENT = Path(__file__).parents[2] / "docs" / "kit.md"
SIZES = {"I": 3, "H": 4, "O": 2, "B": 7}
TENSOR = """
class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const ort = { Tensor };
"""


def declared():
    """Exported names, and the public members of `Kit`, by kit.d.ts."""
    text = (KIT / "kit.d.ts").read_text()
    names = re.findall(r"^export (?:class|function) (\w+)", text, re.MULTILINE)
    inside = re.search(r"^export class Kit \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    members = re.findall(r"^  (?:static |readonly )*(\w+)[(:]", inside[1], re.MULTILINE)
    return sorted(names), set(members)


@needs_node
def test_types_name_what_the_module_exports(tmp_path):
    names, members = declared()
    told = json.loads(node(
        'import * as kit from "./kit.mjs";'
        "console.log(JSON.stringify([Object.keys(kit).sort(),"
        " [...Object.getOwnPropertyNames(kit.Kit.prototype), ...Object.keys(kit.Kit)],"
        " Object.getOwnPropertyNames(kit.Kit)]))", tmp_path))  # fmt: skip

    assert names == told[0]
    assert members - {"manifest", "state"} <= {*told[1], *told[2]}  # these two are data


def test_the_package_has_the_versions_of_gradtool():
    told = json.loads((KIT / "package.json").read_text())

    assert told["version"] == gradtool.__version__
    assert f"const SCHEMA_VERSION = {SCHEMA_VERSION};" in (KIT / "kit.mjs").read_text()
    assert {*told["files"]} | {"package.json"} == {each.name for each in KIT.iterdir()}


# ---------------------------------------------------------------------------- schedules, batches


@needs_node
def test_rates_are_those_of_gradtool(tmp_path):
    cases = [
        (shape, peak, warmup, steps, end)
        for shape in ("constant", "linear", "cosine")
        for peak in (0.3, 1e-4)
        for warmup in (0, 1, 5, 36, 50)
        for steps in (1, 37)
        for end in (0.0, 0.01)
    ]
    told = json.loads(node(
        f'import {{ schedule }} from "./kit.mjs"; const cases = {json.dumps(cases)};'
        "console.log(JSON.stringify(cases.map(([shape, peak, warmup, steps, end]) => {"
        " const rate = schedule(shape, peak, { warmup, steps, end });"
        " return Array.from({ length: 60 }, (_, step) => rate(step)); })))", tmp_path))  # fmt: skip

    for (shape, peak, warmup, steps, end), rates in zip(cases, told, strict=True):
        text = shape if shape == "constant" else f"{shape}@end={end}"
        expected = schedule(text, peak, warmup=warmup, steps=steps)
        np.testing.assert_allclose(rates, [expected(step) for step in range(60)], rtol=1e-14)


BATCHES = """
import {{ batches }} from "./kit.mjs";
const data = {{
  x: new Tensor("float32", Float32Array.from({{ length: 6 * {count} }}, (_, i) => i), [{count}, 2, 3]),
  labels: new Tensor("int64", BigInt64Array.from({{ length: {count} }}, (_, i) => BigInt(i)), [{count}]),
}};
const passes = [{options}].map((options) => (
  [...batches(ort, data, {size}, options)].map(({{ x, labels }}) => ({{
    x: [...x.data], labels: [...labels.data].map(Number), dims: [x.dims, labels.dims],
    types: [x.type, labels.type] }}))));
console.log(JSON.stringify(passes));
"""  # noqa: E501 - a program


@needs_node
@settings(max_examples=5)
@given(size=st.integers(1, 12), more=st.integers(0, 30), seed=st.integers(0, 2**32 - 1))
def test_a_pass_has_each_example_once_in_an_order_that_a_seed_decides(
    tmp_path_factory, size, more, seed
):
    count = size + more
    options = f"{{ seed: {seed}, last: true }}, {{ seed: {seed} }}, {{ last: true }}, undefined"
    text = TENSOR + BATCHES.format(count=count, size=size, options=options)
    passes = json.loads(node(text, tmp_path_factory.mktemp("batches")))

    orders = [[row for batch in each for row in batch["labels"]] for each in passes]
    assert sorted(orders[0]) == orders[2] == list(range(count))
    whole = count // size * size
    assert orders[1] == orders[0][:whole]
    assert orders[3] == orders[2][:whole]
    for batch in passes[0] + passes[3]:
        rows = np.array(batch["labels"])
        assert batch["dims"] == [[len(rows), 2, 3], [len(rows)]]
        assert batch["types"] == ["float32", "int64"]
        np.testing.assert_array_equal(
            np.reshape(batch["x"], (-1, 6)), rows[:, None] * 6 + np.arange(6)
        )


@needs_node
def test_seeds_give_orders_that_are_even(tmp_path):
    """Each of 5 examples is in each place in a fifth of 2 000 orders, within five deviations."""
    seeds = ", ".join(f"{{ seed: {seed} }}" for seed in range(2000))
    text = TENSOR + BATCHES.format(count=5, size=5, options=seeds)
    orders = np.array([each[0]["labels"] for each in json.loads(node(text, tmp_path))])

    counts = np.stack([np.bincount(column, minlength=5) for column in orders.T])
    assert abs(counts - 400).max() < 5 * np.sqrt(2000 * 0.2 * 0.8)
    assert (orders[0] != orders[1]).any()


REFUSALS = {
    "no schedule cosin; there are constant, linear, cosine": 'schedule("cosin", 1)',
    "the schedule linear ends: give the number of steps": 'schedule("linear", 1)',
    "labels has 2 examples of 3": (
        '[...batches(ort, { x: new Tensor("bool", new Uint8Array(3), [3]),'
        ' labels: new Tensor("bool", new Uint8Array(2), [2]) }, 1)]'
    ),
    "a batch has a whole number of examples, 1 or more, not 0.5": (
        '[...batches(ort, { x: new Tensor("bool", new Uint8Array(3), [3]) }, 0.5)]'
    ),
    "3 examples are no batch of 4": (
        '[...batches(ort, { x: new Tensor("bool", new Uint8Array(3), [3]) }, 4)]'
    ),
    "the kit is of schema_version 0, gradtool-kit of 1": (
        "Kit.open(ort, async () => new TextEncoder().encode('{\"schema_version\": 0}'))"
    ),
    "the step takes no number rate; it takes lr_1": "await kit.step({ x: 1 }, { rate: 1 })",
    "the batch has no x": "await kit.step({}, { lr: 1 })",
    "the kit has no input z": 'kit.tensor("z", [1], [1])',
    "onnxruntime has no tensors of bfloat16 in JavaScript": 'kit.tensor("b", [1], [1])',
}


@needs_node
def test_what_cannot_be_done_is_said(tmp_path):
    step = {
        "inputs": [
            {"name": "x", "type": "float32"},
            {"name": "lr_1", "type": "float32", "default": 0.1},
        ],
        "state": [],
    }
    manifest = {
        "step": step, "eval": {"inputs": [{"name": "b", "type": "bfloat16"}]},
        "optimizer": {"inputs": {"lr": "lr_1"}}, "state": {"tensors": []},
    }  # fmt: skip
    tried = [f"() => {text}".replace("() => await", "() =>") for text in REFUSALS.values()]
    said = json.loads(node(TENSOR + f"""
        import {{ batches, Kit, schedule }} from "./kit.mjs";
        const kit = Object.assign(new Kit(), {{ ort, manifest: {json.dumps(manifest)} }});
        const said = [];
        for (const attempt of [{", ".join(tried)}]) {{
          try {{ await attempt(); said.push(null); }} catch (error) {{ said.push(error.message); }}
        }}
        console.log(JSON.stringify(said));""", tmp_path))  # fmt: skip

    assert said == [*REFUSALS]


# ----------------------------------------------------------------------------------- within a kit


@pytest.fixture
def written(run, tmp_path):
    (tmp_path / "net.onnx").write_bytes(net("mlp", SIZES))
    outcome = run("kit", "net.onnx", "--javascript")
    assert outcome.code == 0, outcome.err
    safetensors.save(tmp_path / "batch.safetensors", batch_of("mlp", SIZES))
    return tmp_path


def test_a_kit_holds_the_package_where_it_is_asked_for(run, written):
    for path in KIT.iterdir():
        assert (written / "net.kit" / path.name).read_bytes() == path.read_bytes()
    ours = written / "net.kit" / "package.json"
    ours.write_text("{}")

    assert run("kit", "net.onnx", "--force").code == 0
    assert ours.read_text() == "{}"  # of a kit without it, a file that somebody else wrote
    assert run("kit", "net.onnx", "--force", "--javascript").code == 0
    assert ours.read_bytes() == (KIT / "package.json").read_bytes()


OWN = """
import * as ort from "onnxruntime-node";
import { readFile } from "node:fs/promises";
import { Kit, readTensors } from "./net.kit/kit.mjs";
const batch = readTensors(ort, await readFile("batch.safetensors"));
const first = await Kit.open(ort, "net.kit/");
const second = await Kit.open(ort, (name) => readFile(`net.kit/${name}`));
"""


@pytest.mark.extra
@needs_modules
def test_the_state_moves_from_step_to_step(written):
    """What a step returned is what the next one is fed, the very tensors; reading is by name."""
    (written / "node_modules").symlink_to(MODULES)
    text = OWN + """
        const found = { losses: [], moved: true };
        for (let step = 0; step < 3; step++) {
          const before = { ...first.state };
          found.losses.push([await first.step(batch, { lr: 0.01 * step }),
                             await second.step(batch, { lr: 0.01 * step })]);
          for (const name of first.manifest.step.state) {
            found.moved &&= first.feeds[name] === before[name];
            found.moved &&= before[name] !== first.state[name];
          }
        }
        found.together = await Promise.allSettled([first.step(batch), first.step(batch)]);
        found.together = found.together.map(({ reason }) => reason?.message);
        second.state = { ...first.state };
        found.evaluated = await Promise.all([first, second].map(async (kit) => (
          (await kit.evaluate(batch))[kit.manifest.loss].data[0])));
        await first.close();
        console.log(JSON.stringify(found));"""  # fmt: skip
    found = json.loads(node(text, written))

    assert found["moved"]
    assert found["losses"][0] == found["losses"][1]  # at a rate of 0 nothing is learned
    assert all(ours == theirs for ours, theirs in found["losses"])
    assert found["losses"][2] < found["losses"][1]
    assert found["together"] == [None, "a step begins when the one before has ended: await it"]
    assert found["evaluated"][0] == found["evaluated"][1]


@pytest.mark.extra
@needs_modules
def test_a_folder_in_node_may_have_weights_beside_the_model(run, written):
    """As a kit has them whose frozen weights are too large for one file."""
    (written / "node_modules").symlink_to(MODULES)
    assert run("kit", "net.onnx", "--wrt", "w2", "--javascript", "--force").code == 0
    path = written / "net.kit" / "step.onnx"
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="step.onnx.data", size_threshold=64)
    assert (path.parent / "step.onnx.data").stat().st_size
    text = OWN.replace("const second", "// ") + "console.log(await first.step(batch));"

    assert np.isfinite(float(node(text, written)))


@pytest.mark.extra
@needs_modules
def test_the_program_of_the_page_trains(run, written):
    """That of docs/kit.md: two batches of 32 in each of ten passes, and a state that is merged."""
    (text,) = re.findall(r"```js\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (written / "node_modules").symlink_to(MODULES)
    (written / "net.kit").rename(written / "model.kit")
    safetensors.save(written / "data.safetensors", batch_of("mlp", {**SIZES, "B": 63}))
    losses = [float(line.split()[1]) for line in node(text, written).splitlines()]

    assert len(losses) == 20
    assert np.mean(losses[-2:]) < np.mean(losses[:2])
    merged = run("kit", "merge", "model.kit", "trained.safetensors", "-o", "trained.onnx")
    assert merged.code == 0, merged.err


TYPED = """
import * as node from "onnxruntime-node";
import * as web from "onnxruntime-web";
import { batches, Kit, readTensors, schedule, writeTensors, type Tensors } from "gradtool-kit";

export async function train(place: string): Promise<Uint8Array> {
  const kit = await Kit.open(node, place, { intraOpNumThreads: 1 });
  const data: Tensors = readTensors(node, new ArrayBuffer(8));
  const rate = schedule("cosine", 1e-3, { warmup: 5, steps: 50 });
  for (const batch of batches(node, data, 4, { seed: 1 })) {
    const loss: number = await kit.step(batch, { lr: rate(0) });
    console.log(loss, kit.manifest.state.tensors[0]?.next);
  }
  const labels: node.Tensor = kit.tensor("labels", [1, 2n], [2]);
  const { logits } = await kit.evaluate({ labels });
  console.log(logits?.dims);
  await kit.close();
  return writeTensors(kit.state);
}
export const opened = Kit.open(web, (name) => fetch(name).then((got) => got.arrayBuffer()));
// @ts-expect-error - no such shape
schedule("cosin", 1);
// @ts-expect-error - a loss is awaited
export const loss: number = (await opened).step({});
"""


@pytest.mark.extra
@needs_modules
@pytest.mark.skipif(not (MODULES / ".bin" / "tsc").exists(), reason="no TypeScript")
@pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")
def test_a_packed_package_has_types_for_node_and_the_web(tmp_path):
    (packed,) = json.loads(printed("npm", "pack", KIT, "--json", folder=tmp_path))
    with tarfile.open(tmp_path / packed["filename"]) as archive:
        archive.extractall(tmp_path, filter="data")
    assert sorted(each["path"] for each in packed["files"]) == sorted(p.name for p in KIT.iterdir())
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (tmp_path / "package").rename(modules / "gradtool-kit")
    for each in MODULES.iterdir():
        if each.name != "gradtool-kit":
            (modules / each.name).symlink_to(each)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "train.ts").write_text(TYPED)
    tsc = (MODULES / ".bin" / "tsc").resolve()
    printed(
        tsc, "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--module", "nodenext",
        "--target", "esnext", "--lib", "esnext,dom", "train.ts", folder=tmp_path,
    )  # fmt: skip
