// node train.mjs KIT BATCH.safetensors TRAINED.safetensors
// 50 steps on a batch; prints each loss, and the loss of the evaluation.
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import * as ort from "onnxruntime-node";
import { Kit, readTensors, writeTensors } from "./kit.mjs";

const STEPS = 50;
const [folder, batchFile, trained] = process.argv.slice(2);

async function read(path) {
  const { buffer, byteOffset, byteLength } = await readFile(path);
  return buffer.slice(byteOffset, byteOffset + byteLength);
}

const kit = await Kit.open(ort, (name) => read(join(folder, name)));
const batch = readTensors(ort, await read(batchFile));
for (let step = 0; step < STEPS; step++) {
  console.log(step, await kit.step(batch));
}
const evaluated = await kit.evaluate(batch);
console.log("evaluation", evaluated[kit.manifest.loss].data[0]);
await writeFile(trained, writeTensors(kit.state));
