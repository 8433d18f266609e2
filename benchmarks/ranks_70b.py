"""A training of a model of the shape of Llama 2 70B, laid out on 64 ranks without a weight.

    python benchmarks/ranks_70b.py [--layers 80] [--ranks 64] [--tokens 4096] [--stages 8]

Writes the graph to a temporary file whose weights are not there, prints what `gradtool report
--ranks` says of it, with all of the model on each rank, in stages, and in stages whose ranks have
parts of the optimizer's state, and the seconds that took.
Every rank takes a sequence, a line of stages as many at once as it has stages.  Rotary embeddings,
which have no weights, are left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx
from onnx import TensorProto, helper, parser

WORDS, WIDTH, INNER, HEADS, SHARED = 32000, 8192, 28672, 64, 8
LAYER = """
    a{i} = RMSNormalization (x{i}, l{i}_attention_norm)
    q{i} = MatMul (a{i}, l{i}_q)
    k{i} = MatMul (a{i}, l{i}_k)
    v{i} = MatMul (a{i}, l{i}_v)
    t{i} = Attention <q_num_heads = 64, kv_num_heads = 8, is_causal = 1> (q{i}, k{i}, v{i})
    o{i} = MatMul (t{i}, l{i}_o)
    y{i} = Add (x{i}, o{i})
    b{i} = RMSNormalization (y{i}, l{i}_ffn_norm)
    g{i} = MatMul (b{i}, l{i}_gate)
    s{i} = Sigmoid (g{i})
    w{i} = Mul (g{i}, s{i})
    u{i} = MatMul (b{i}, l{i}_up)
    m{i} = Mul (w{i}, u{i})
    d{i} = MatMul (m{i}, l{i}_down)
    x{n} = Add (y{i}, d{i})"""


def sizes(layers: int) -> dict[str, tuple[int, ...]]:
    """The weights, by name."""
    found: dict[str, tuple[int, ...]] = {"table": (WORDS, WIDTH)}
    narrow = WIDTH * SHARED // HEADS
    for i in range(layers):
        for name, shape in {
            "attention_norm": (WIDTH,), "q": (WIDTH, WIDTH), "k": (WIDTH, narrow),
            "v": (WIDTH, narrow), "o": (WIDTH, WIDTH), "ffn_norm": (WIDTH,),
            "gate": (WIDTH, INNER), "up": (WIDTH, INNER), "down": (INNER, WIDTH),
        }.items():  # fmt: skip
            found[f"l{i}_{name}"] = shape
    return {**found, "norm": (WIDTH,), "head": (WIDTH, WORDS)}


def llama(layers: int, tokens: int) -> onnx.ModelProto:
    """The graph, whose weights are said to be in a file."""
    body = "".join(LAYER.format(i=i, n=i + 1) for i in range(layers))
    model = parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 23]>
    llama (int64[batch, {tokens}] ids) => (float[batch, {tokens}, {WORDS}] logits) {{
        x0 = Gather (table, ids) {body}
        last = RMSNormalization (x{layers}, norm)
        logits = MatMul (last, head)
    }}""")
    for name, shape in sizes(layers).items():
        weight = model.graph.initializer.add(
            name=name, data_type=TensorProto.FLOAT, dims=shape,
            data_location=TensorProto.EXTERNAL,
        )  # fmt: skip
        weight.external_data.add(key="location", value="nobody.has.it")
    helper.set_model_props(model, {})
    return model


def main() -> None:
    """Write the graph, and lay it out."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--layers", type=int, default=80)
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--tokens", type=int, default=4096)
    options.add_argument("--stages", type=int, default=8)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "llama.onnx")
        onnx.save(llama(given.layers, given.tokens), path)
        stages = ["--stages", str(given.stages), "--micro-batches", str(given.stages)]
        for more in ([], stages, [*stages, "--shard", "optimizer"]):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gradtool", "report", path.name, "--ranks",
                 str(given.ranks), "--batch", str(given.ranks), "--loss", "ce", "--link", "25GB/s",
                 "--latency", "5us", *more],
                cwd=folder, check=True,
            )  # fmt: skip
            print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
