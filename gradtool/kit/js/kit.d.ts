import type { InferenceSession, Tensor } from "onnxruntime-common";

/** The module onnxruntime-node or onnxruntime-web. */
export type Runtime = Pick<typeof import("onnxruntime-common"), "InferenceSession" | "Tensor">;

/** Tensors by name. */
export type Tensors = Record<string, Tensor>;

export interface Value {
  name: string;
  /** The element type, as NumPy calls it. */
  type: Tensor.Type;
  /** A size that is open is a text. */
  shape: (number | string | null)[] | null;
}

export interface Input extends Value {
  default?: number;
}

/** A pure function. */
export interface Part {
  file: string;
  inputs: Input[];
  /** The tensors of the state that it takes. */
  state: string[];
  outputs: Value[];
}

/** What of `manifest.json` a program goes by; `gradtool schema kit` prints the whole schema. */
export interface Manifest {
  schema_version: number;
  loss: string;
  optimizer: { name: string; learning_rate: string; inputs: Record<string, string> };
  onnxruntime: Record<string, unknown>;
  step: Part;
  eval: Part;
  state: {
    safetensors: string;
    tensors: {
      name: string;
      /** The output of the step that is `name` in the next one. */
      next: string;
      role: "parameter" | "statistic" | "optimizer";
      type: Tensor.Type;
      shape: number[];
      file: string;
    }[];
  };
}

/** A folder in Node, an address in a browser, or what reads a file by its name. */
export type Place = string | ((name: string) => Promise<ArrayBuffer | Uint8Array>);

export class Kit {
  /** Open a kit; `options` are those of a session of onnxruntime. */
  static open(
    ort: Runtime, place: Place, options?: InferenceSession.SessionOptions,
  ): Promise<Kit>;
  readonly manifest: Manifest;
  /** The state as it is now. Tensors of the same names, types and shapes may take its place. */
  state: Tensors;
  /**
   * Train on a batch, with numbers of the optimizer (`{ lr: 1e-3 }`) other than their defaults.
   * Await it before the next; returns the loss.
   */
  step(batch: Readonly<Tensors>, numbers?: Readonly<Record<string, number>>): Promise<number>;
  /** What the model makes of a batch with the weights as they are now, the loss among it. */
  evaluate(batch: Readonly<Tensors>): Promise<Readonly<Tensors>>;
  /** Numbers, in the order of the elements, as a tensor of the type of an input. */
  tensor(name: string, values: Iterable<number | bigint>, dims: readonly number[]): Tensor;
  /** Free what the sessions hold; the state stays. */
  close(): Promise<void>;
}

/** The tensors of a safetensors file, by name. */
export function readTensors(ort: Runtime, file: ArrayBuffer | Uint8Array): Tensors;

/** Tensors by name as the bytes of a safetensors file. */
export function writeTensors(tensors: Readonly<Tensors>): Uint8Array<ArrayBuffer>;

export interface ScheduleOptions {
  /** Steps up to the peak. */
  warmup?: number;
  /** All steps, those of the warm-up among them. */
  steps?: number;
  /** The rate at the end. */
  end?: number;
}

/** The learning rate of each step, the first of which is 0, as `gradtool train` has it. */
export function schedule(
  shape: "constant" | "linear" | "cosine", peak: number, options?: ScheduleOptions,
): (step: number) => number;

export interface BatchOptions {
  /** Shuffle: the same seed, the same order. */
  seed?: number;
  /** Also what is left at the end, of fewer examples. */
  last?: boolean;
}

/** One pass over data, whose first axis counts the examples, in batches of a size. */
export function batches(
  ort: Runtime, data: Readonly<Tensors>, size: number, options?: BatchOptions,
): Generator<Tensors, void, undefined>;
