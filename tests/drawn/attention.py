"""Attention and rotary embeddings."""

from __future__ import annotations

from typing import Any

from drawn.case import Case, Draw, Given, draws


@draws("Attention")
def attention(d: Draw) -> Case:
    batch, kv, queries, keys = d.int(1, 2), d.int(1, 2), d.int(1, 3), d.int(1, 4)
    heads, size, wide = kv * d.one(1, 1, 2), d.int(1, 3), d.int(1, 3)
    flat, past = d.flag(0.3), d.int(0, 2) if d.flag(0.3) else None
    given: dict[str, Any] = d.maybe(is_causal=d.int(0, 1))
    if d.flag(0.3):
        given["scale"] = d.one(0.3, 1.0)
    if d.flag(0.3):
        given["softcap"] = d.one(1.5, 4.0)
    if flat:
        shapes = (batch, queries, heads * size), (batch, keys, kv * size), (batch, keys, kv * wide)
        given |= {"q_num_heads": heads, "kv_num_heads": kv}
    else:
        shapes = (batch, heads, queries, size), (batch, kv, keys, size), (batch, kv, keys, wide)
    total = keys + (past or 0)
    inputs: list[Given | None] = [d.x(s, -1.0, 1.0) for s in shapes]
    inputs.append(_mask(d, (batch, heads, queries, total)))
    if past is not None:
        inputs += [d.x((batch, kv, past, size)), d.x((batch, kv, past, wide))]
    outputs = 3 if past is not None else d.one(1, 1, 3)
    if d.flag(0.15):
        outputs = 4  # scores, which are infinite where a mask hides them
        given["qk_matmul_output_mode"] = d.int(0, 3)
        given.pop("is_causal", None)
        if inputs[3] is not None and inputs[3].array.dtype == bool:
            inputs[3] = None
    return d.case(*inputs, outputs=outputs, opset=(23, 24), rough=8.0, **given)


def _mask(d: Draw, shape: tuple[int, ...]) -> Given | None:
    if d.flag():
        return None
    whole = list(shape)
    if d.flag():
        whole[0] = 1
    if d.flag():
        whole[1] = 1
    whole = whole[d.int(0, 2) :]
    if d.flag():
        return d.x(whole, -1.0, 1.0)
    allowed = d.rng.random(whole) > 0.3
    allowed[..., 0] = True
    return d.fixed(allowed)


@draws("RotaryEmbedding")
def rotary(d: Draw) -> Case:
    batch, length, heads, half = d.int(1, 2), d.int(1, 4), d.int(1, 3), d.int(1, 3)
    extra = d.one(0, 0, 2)
    size = 2 * half + extra
    given: dict[str, Any] = d.maybe(interleaved=d.int(0, 1))
    if extra:
        given["rotary_embedding_dim"] = 2 * half
    flat = d.flag() or bool(extra)
    if flat:
        given["num_heads"] = heads
    x = d.x((batch, length, heads * size) if flat else (batch, heads, length, size))
    if d.flag():
        tables = [d.x((6, half), closed=True) for _ in range(2)]
        places = d.fixed(d.rng.integers(0, 6, (batch, length)))
        return d.case(x, *tables, places, opset=23, dtypes=("float32", "float16"), **given)
    tables = [d.x((batch, length, half)) for _ in range(2)]
    return d.case(x, *tables, opset=23, dtypes=("float32", "float16"), **given)
