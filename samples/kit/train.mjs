// node train.mjs KIT BATCH.safetensors TRAINED.safetensors
// 50 steps on a batch; prints each loss, and the loss of the evaluation.
import { readFile, writeFile } from "node:fs/promises";
import * as ort from "onnxruntime-node";
import { Kit, readTensors, writeTensors } from "gradtool-kit";

const STEPS = 50;
const [folder, batchFile, trained] = process.argv.slice(2);

// So small a model is fastest on one thread.
const kit = await Kit.open(ort, folder, { intraOpNumThreads: 1 });
const batch = readTensors(ort, await readFile(batchFile));
for (let step = 0; step < STEPS; step++) {
  console.log(step, await kit.step(batch));
}
const evaluated = await kit.evaluate(batch);
console.log("evaluation", evaluated[kit.manifest.loss].data[0]);
await writeFile(trained, writeTensors(kit.state));
