// Kits of `gradtool kit` in JavaScript: `ort` is the module onnxruntime-node or onnxruntime-web.

const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array,
  float16: Uint16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array,
  uint64: BigUint64Array, int64: BigInt64Array, float64: Float64Array,
};
const TYPES = {
  BOOL: "bool", U8: "uint8", I8: "int8", U16: "uint16", I16: "int16", F16: "float16",
  U32: "uint32", I32: "int32", F32: "float32", U64: "uint64", I64: "int64", F64: "float64",
};
const NAMES = Object.fromEntries(Object.entries(TYPES).map(([name, type]) => [type, name]));
const HALF = { unit: 2 ** 24, least: 2 ** -14, most: 65520, bias: 112 << 23, bits: 13 };
const SCHEMA_VERSION = 1; // of a manifest
const LENGTH = 8; // bytes of the length of a safetensors header, little-endian
// Threads that wait by spinning take the processor from whatever else runs: beside another busy
// process a step took ten times as long.
const SESSION = { extra: { session: { intra_op: { allow_spinning: "0" } } } };
const OPTIONS = { enable_mem_pattern: "enableMemPattern" }; // of the manifest that JavaScript has

/** The bits of a number in float16: the nearest, of two the even one. */
function half(value) {
  const [bits] = new Uint32Array(Float32Array.of(value).buffer);
  const sign = (bits >>> 16) & 0x8000;
  const size = Math.abs(value);
  if (Number.isNaN(value)) return 0x7e00;
  if (size >= HALF.most) return sign | 0x7c00;
  if (size < HALF.least) {
    const below = Math.floor(size * HALF.unit);
    const rest = size * HALF.unit - below;
    return sign | (rest > 0.5 || (rest === 0.5 && below % 2) ? below + 1 : below);
  }
  const magnitude = (bits & 0x7fffffff) - HALF.bias;
  return sign | ((magnitude + 0xfff + ((magnitude >>> HALF.bits) & 1)) >>> HALF.bits);
}

/** Numbers as the data of a tensor: 64 bits are BigInt, float16 is its bits. */
function elements(type, values) {
  const Data = arrayOf(type);
  if (Data === BigInt64Array || Data === BigUint64Array) return Data.from(values, BigInt);
  return Data.from(values, type === "float16" ? half : Number);
}

function arrayOf(type) {
  if (!(type in ARRAYS)) throw new TypeError(`onnxruntime has no tensors of ${type} in JavaScript`);
  return ARRAYS[type];
}

/** The tensors of a safetensors file, by name. */
export function readTensors(ort, file) {
  const { buffer = file, byteOffset = 0, byteLength } = file;
  const length = Number(new DataView(buffer, byteOffset, byteLength).getBigUint64(0, true));
  const text = new TextDecoder().decode(new Uint8Array(buffer, byteOffset + LENGTH, length));
  const { __metadata__: _, ...header } = JSON.parse(text);
  const start = byteOffset + LENGTH + length;
  return Object.fromEntries(Object.entries(header).map(([name, { dtype, shape, data_offsets }]) => {
    const bytes = buffer.slice(start + data_offsets[0], start + data_offsets[1]);
    const type = TYPES[dtype] ?? dtype;
    return [name, new ort.Tensor(type, new (arrayOf(type))(bytes), shape)];
  }));
}

/** Tensors by name as the bytes of a safetensors file. */
export function writeTensors(tensors) {
  const header = {};
  const parts = [];
  let end = 0;
  for (const [name, { type, dims, data }] of Object.entries(tensors)) {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    header[name] = { dtype: NAMES[type], shape: dims, data_offsets: [end, end += bytes.length] };
    parts.push(bytes);
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const file = new Uint8Array(LENGTH + text.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, LENGTH);
  let place = LENGTH + text.length;
  for (const part of parts) {
    file.set(part, place);
    place += part.length;
  }
  return file;
}

const SHAPES = {
  constant: (peak) => peak,
  linear: (peak, done, end) => peak + (end - peak) * done,
  cosine: (peak, done, end) => end + (peak - end) * (1 + Math.cos(Math.PI * done)) / 2,
};

/**
 * The learning rate of each step, the first of which is 0: `warmup` steps up to the peak on a line,
 * then down to `end` at `steps`, as a schedule of `gradtool train`.
 */
export function schedule(shape, peak, { warmup = 0, steps = 0, end = 0 } = {}) {
  if (!Object.hasOwn(SHAPES, shape)) {
    throw new TypeError(`no schedule ${shape}; there are ${Object.keys(SHAPES).join(", ")}`);
  }
  if (shape !== "constant" && !(steps > 0)) {
    throw new RangeError(`the schedule ${shape} ends: give the number of steps`);
  }
  const left = Math.max(steps - warmup, 1);
  return (step) => {
    if (step < warmup) return peak * (step + 1) / warmup;
    return SHAPES[shape](peak, Math.min(step - warmup, left) / left, end);
  };
}

/** Numbers from 0 to 1 that a seed decides: Weyl's sequence, mixed by MurmurHash3's last steps. */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x85ebca6b);
    mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
    return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
  };
}

/** The numbers below a count in the order that a seed decides: Fisher and Yates's shuffle. */
function shuffled(count, seed) {
  const order = Uint32Array.from({ length: count }, (_, place) => place);
  const draw = random(seed);
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor(draw() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  return order;
}

/**
 * One pass over data (tensors by name, whose first axis counts the examples) in batches of a size.
 * A `seed` shuffles: another one, another order. What is left at the end is a batch with `last`.
 */
export function* batches(ort, data, size, { seed, last = false } = {}) {
  const tensors = Object.entries(data);
  const [count] = tensors[0][1].dims;
  const uneven = tensors.find(([, { dims }]) => dims[0] !== count);
  if (uneven) throw new RangeError(`${uneven[0]} has ${uneven[1].dims[0]} examples of ${count}`);
  if (!(Number.isInteger(size) && size > 0)) {
    throw new RangeError(`a batch has a whole number of examples, 1 or more, not ${size}`);
  }
  if (count < size && !last) throw new RangeError(`${count} examples are no batch of ${size}`);
  const order = seed === undefined ? Uint32Array.from({ length: count }, (_, i) => i)
    : shuffled(count, seed);
  const end = last ? count : count - size + 1;
  for (let start = 0; start < end; start += size) {
    const chosen = order.subarray(start, start + size);
    yield Object.fromEntries(tensors.map(([name, tensor]) => [name, rows(ort, tensor, chosen)]));
  }
}

function rows(ort, { type, data, dims: [, ...inner] }, chosen) {
  const each = inner.reduce((product, dim) => product * dim, 1);
  const taken = new data.constructor(chosen.length * each);
  chosen.forEach((row, place) => {
    taken.set(data.subarray(row * each, (row + 1) * each), place * each);
  });
  return new ort.Tensor(type, taken, [chosen.length, ...inner]);
}

/** How to read the files of a kit, and what a session is made of. */
function files(place) {
  if (typeof place === "function") return { read: place, model: place };
  const path = (name) => `${String(place).replace(/\/$/, "")}/${name}`;
  const node = globalThis.process?.getBuiltinModule?.("node:fs/promises");
  const read = async (name) => {
    if (node) return node.readFile(path(name));
    const answer = await fetch(path(name));
    if (!answer.ok) throw new Error(`${path(name)}: ${answer.status} ${answer.statusText}`);
    return answer.arrayBuffer();
  };
  return { read, model: path };
}

export class Kit {
  /**
   * Open a kit: a folder in Node, an address in a browser, or a function from the name of a file to
   * a promise of its bytes. `options` are those of a session of onnxruntime.
   */
  static async open(ort, place, options = {}) {
    const { read, model } = files(place);
    const kit = new Kit();
    kit.ort = ort;
    kit.manifest = JSON.parse(new TextDecoder().decode(await read("manifest.json")));
    const { schema_version: version, step, eval: evaluation, state, onnxruntime } = kit.manifest;
    if (version !== SCHEMA_VERSION) {
      throw new Error(`the kit is of schema_version ${version}, gradtool-kit of ${SCHEMA_VERSION}`);
    }
    const told = Object.entries(OPTIONS).filter(([name]) => name in onnxruntime);
    const all = {
      ...SESSION, ...Object.fromEntries(told.map(([name, own]) => [own, onnxruntime[name]])),
      ...options,
    };
    kit.state = readTensors(ort, await read(state.safetensors));
    kit.stepping = await ort.InferenceSession.create(await model(step.file), all);
    kit.evaluating = await ort.InferenceSession.create(await model(evaluation.file), all);
    return kit;
  }

  /** Train on a batch (tensors by name), with numbers of the optimizer (`lr`); the loss. */
  async step(batch, numbers = {}) {
    const { step, state, loss } = this.manifest;
    if (this.busy) throw new Error("a step begins when the one before has ended: await it");
    this.busy = true;
    try {
      // Filled again each time: making an object of a hundred names takes longer.
      this.feeds = this.fill(step, { ...this.scalars(step, numbers), ...batch }, this.feeds);
      this.wanted ??= [loss, ...state.tensors.map(({ next }) => next)];
      const found = await this.stepping.run(this.feeds, this.wanted);
      for (const { name, next } of state.tensors) this.state[name] = found[next];
      return found[loss].data[0];
    } finally {
      this.busy = false;
    }
  }

  /** What the model makes of a batch with the weights as they are now, the loss among it. */
  async evaluate(batch) {
    const part = this.manifest.eval;
    return this.evaluating.run(this.fill(part, { ...this.scalars(part), ...batch }));
  }

  /** What a part takes: its inputs as given, and the state. */
  fill({ inputs, state }, given, feeds = {}) {
    for (const { name } of inputs) {
      if (given[name] === undefined) throw new TypeError(`the batch has no ${name}`);
      feeds[name] = given[name];
    }
    for (const name of state) feeds[name] = this.state[name];
    return feeds;
  }

  /** The inputs that have a default, as given by the optimizer's names for them or their own. */
  scalars({ inputs }, numbers = {}) {
    const own = this.manifest.optimizer.inputs;
    const scalars = inputs.filter((input) => input.default !== undefined);
    const given = new Map(Object.entries(numbers).map(([name, value]) => (
      [Object.hasOwn(own, name) ? own[name] : name, value]
    )));
    const unknown = [...given.keys()].find((name) => !scalars.some((each) => each.name === name));
    if (unknown !== undefined) {
      const known = scalars.map(({ name }) => name).join(", ");
      throw new TypeError(`the step takes no number ${unknown}; it takes ${known}`);
    }
    return Object.fromEntries(scalars.map(({ name, type, default: value }) => (
      [name, new this.ort.Tensor(type, elements(type, [given.get(name) ?? value]), [])]
    )));
  }

  /** Numbers, in the order of the elements, as a tensor of the type of an input. */
  tensor(name, values, dims) {
    const { step, eval: evaluation } = this.manifest;
    const input = [...step.inputs, ...evaluation.inputs].find((each) => each.name === name);
    if (input === undefined) throw new TypeError(`the kit has no input ${name}`);
    return new this.ort.Tensor(input.type, elements(input.type, values), dims);
  }

  /** Free what the sessions hold; the state stays. */
  async close() {
    await this.stepping.release();
    await this.evaluating.release();
  }
}
