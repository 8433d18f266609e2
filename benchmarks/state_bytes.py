"""What each optimizer keeps for GPT-2 of 124 million parameters, as plans of whole steps have it.

    python benchmarks/state_bytes.py

Prints the table of docs/optimizers.md: the row `state` of the plan, its bytes for each byte of
parameters, and the peak of a step of one sequence of 64 tokens.  The model is built here, without
weights; its embedding is tied to its output.
"""

from __future__ import annotations

import sys

import onnx_ir as ir

import gradtool as gt
from gradtool.graph.optimizers import OPTIMIZERS
from gradtool.io.zeros import Zeros

WORDS, PLACES, WIDTH, HEADS, LAYERS = 50257, 1024, 768, 12, 12
TOKENS = 64
MIB = 2**20

LAYER = """
    a{i} = LayerNormalization (x{i}, l{i}.ln_1.weight, l{i}.ln_1.bias)
    p{i} = MatMul (a{i}, l{i}.attn.c_attn.weight)
    s{i} = Add (p{i}, l{i}.attn.c_attn.bias)
    q{i}, k{i}, v{i} = Split <axis = -1, num_outputs = 3> (s{i})
    t{i} = Attention <q_num_heads = HEADS, kv_num_heads = HEADS, is_causal = 1> (q{i}, k{i}, v{i})
    o{i} = MatMul (t{i}, l{i}.attn.c_proj.weight)
    r{i} = Add (o{i}, l{i}.attn.c_proj.bias)
    y{i} = Add (x{i}, r{i})
    b{i} = LayerNormalization (y{i}, l{i}.ln_2.weight, l{i}.ln_2.bias)
    c{i} = MatMul (b{i}, l{i}.mlp.c_fc.weight)
    d{i} = Add (c{i}, l{i}.mlp.c_fc.bias)
    e{i} = Gelu <approximate = "tanh"> (d{i})
    f{i} = MatMul (e{i}, l{i}.mlp.c_proj.weight)
    g{i} = Add (f{i}, l{i}.mlp.c_proj.bias)
    x{n} = Add (y{i}, g{i})"""


def layer_sizes(width: int) -> dict[str, tuple[int, ...]]:
    """The parameters of a layer."""
    return {
        "ln_1.weight": (width,), "ln_1.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width), "attn.c_attn.bias": (3 * width,),
        "attn.c_proj.weight": (width, width), "attn.c_proj.bias": (width,),
        "ln_2.weight": (width,), "ln_2.bias": (width,),
        "mlp.c_fc.weight": (width, 4 * width), "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (4 * width, width), "mlp.c_proj.bias": (width,),
    }  # fmt: skip


def gpt2() -> ir.Model:
    """GPT-2 with zeros for weights, of which no byte is there."""
    sizes = {"wte": (WORDS, WIDTH), "wpe": (PLACES, WIDTH), "ln_f.weight": (WIDTH,),
             "ln_f.bias": (WIDTH,)}  # fmt: skip
    for i in range(LAYERS):
        sizes |= {f"l{i}.{name}": shape for name, shape in layer_sizes(WIDTH).items()}
    plain = {name: name.replace(".", "_") for name in sizes}
    layers = "".join(LAYER.format(i=i, n=i + 1) for i in range(LAYERS)).replace("HEADS", f"{HEADS}")
    for name, safe in plain.items():
        layers = layers.replace(f" {name},", f" {safe},").replace(f" {name})", f" {safe})")
    weights = ", ".join(f"float{list(shape)} {plain[name]}" for name, shape in sizes.items())
    output = f"float[1, {TOKENS}, {WORDS}] logits"
    model = ir.from_onnx_text(f"""<ir_version: 11, opset_import: ["" : 23]>
    gpt2 (int64[1, {TOKENS}] ids, int64[{TOKENS}] places, {weights}) => ({output}) {{
        words = Gather (wte, ids)
        where = Gather (wpe, places)
        x0 = Add (words, where) {layers}
        last = LayerNormalization (x{LAYERS}, ln_f_weight, ln_f_bias)
        head = Transpose <perm = [1, 0]> (wte)
        logits = MatMul (last, head)
    }}""")
    values = {value.name: value for value in model.graph.inputs}
    for name, shape in sizes.items():
        value = values[plain[name]]
        model.graph.inputs.remove(value)
        value.name = name
        value.const_value = Zeros(ir.DataType.FLOAT, shape, name)
        model.graph.register_initializer(value)
    return model


def main() -> None:
    """Print a row for each optimizer."""
    print("| optimizer | state | for each byte of parameters | planned peak |\n|---|--:|--:|--:|")
    for optimizer in OPTIMIZERS:
        if optimizer == "none":
            continue
        training = gt.grad(gt.load(gpt2()), loss="ce", optimizer=optimizer)
        plan = gt.plan(training)
        at = plan.regions(plan.peak_step)
        state, parameters = at.get("state", 0), at["parameters"]
        print(
            f"| `{optimizer}` | {state / MIB:,.2f} MiB | {state / parameters:.3f} | "
            f"{plan.peak / MIB:,.0f} MiB |"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
