// A kit of `gradtool kit` in JavaScript: `ort` is onnxruntime-node or onnxruntime-web.

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
const LENGTH = 8; // bytes of the length of a safetensors header, little-endian

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
function numbers(type, values) {
  const Data = arrayOf(type);
  if (Data === BigInt64Array || Data === BigUint64Array) return Data.from(values, BigInt);
  return Data.from(values, type === "float16" ? half : Number);
}

function arrayOf(type) {
  if (!(type in ARRAYS)) throw new TypeError(`onnxruntime has no tensors of ${type} in JavaScript`);
  return ARRAYS[type];
}

/** The tensors of a safetensors file (an ArrayBuffer), by name. */
export function readTensors(ort, file) {
  const length = Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, LENGTH, length)));
  delete header.__metadata__;
  const start = LENGTH + length;
  return Object.fromEntries(Object.entries(header).map(([name, { dtype, shape, data_offsets }]) => {
    const bytes = file.slice(start + data_offsets[0], start + data_offsets[1]);
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

export class Kit {
  /** Open a kit whose files `read` returns: a promise of an ArrayBuffer, by name. */
  static async open(ort, read) {
    const kit = new Kit();
    kit.ort = ort;
    kit.manifest = JSON.parse(new TextDecoder().decode(await read("manifest.json")));
    const { step, eval: evaluation, state } = kit.manifest;
    kit.state = readTensors(ort, await read(state.safetensors));
    kit.stepping = await ort.InferenceSession.create(await read(step.file));
    kit.evaluating = await ort.InferenceSession.create(await read(evaluation.file));
    return kit;
  }

  /** Train on a batch (tensors by name); returns the loss. */
  async step(batch) {
    const { step, state, loss } = this.manifest;
    const feeds = { ...this.defaults(step), ...batch, ...this.chosen(step) };
    const found = await this.stepping.run(feeds);
    for (const { name, next } of state.tensors) {
      this.state[name] = found[next];
    }
    return found[loss].data[0];
  }

  /** What the model makes of a batch with the weights as they are now, the loss among it. */
  async evaluate(batch) {
    return this.evaluating.run({ ...batch, ...this.chosen(this.manifest.eval) });
  }

  /** The inputs that have a default: the learning rate. */
  defaults({ inputs }) {
    const given = inputs.filter((input) => input.default !== undefined);
    return Object.fromEntries(given.map(({ name, type, default: value }) => (
      [name, new this.ort.Tensor(type, numbers(type, [value]), [])]
    )));
  }

  /** Numbers, in the order of the elements, as a tensor of the type of an input. */
  tensor(name, values, dims) {
    const { step, eval: evaluation } = this.manifest;
    const input = [...step.inputs, ...evaluation.inputs].find((each) => each.name === name);
    if (input === undefined) throw new TypeError(`the kit has no input ${name}`);
    return new this.ort.Tensor(input.type, numbers(input.type, values), dims);
  }

  chosen({ state }) {
    return Object.fromEntries(state.map((name) => [name, this.state[name]]));
  }
}
