// Trains in a thread of its own, so that the page goes on answering.
// Takes { steps }; posts { loss } after each step, then { evaluated, trained }: a loss, and a file.
import * as ort from "./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs";
import { Kit, readTensors, writeTensors } from "./node_modules/gradtool-kit/kit.mjs";

ort.env.wasm.numThreads = 1; // more need a server that isolates the page

onmessage = async ({ data: { steps } }) => {
  try {
    const kit = await Kit.open(ort, "transformer.kit");
    const file = await fetch("batch.safetensors");
    if (!file.ok) throw new Error(`batch.safetensors: ${file.status} ${file.statusText}`);
    const batch = readTensors(ort, await file.arrayBuffer());
    for (let step = 0; step < steps; step++) postMessage({ loss: await kit.step(batch) });
    const evaluated = (await kit.evaluate(batch))[kit.manifest.loss].data[0];
    const trained = writeTensors(kit.state);
    postMessage({ evaluated, trained }, [trained.buffer]);
  } catch (error) {
    setTimeout(() => { throw error; }); // as an error of the worker
  }
};
