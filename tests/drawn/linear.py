"""Products: of matrices, by equations, determinants."""

from __future__ import annotations

from typing import Any

from drawn.case import Case, Draw, draws


@draws("MatMul")
def matmul(d: Draw) -> Case:
    m, k, n = d.size(0, 4), d.size(0, 4), d.size(0, 4)
    lead = d.shape(0, 3)
    while len(lead) and any(s > 3 for s in lead):
        lead = lead[1:]
    form = d.int(0, 5)
    if form == 0:
        return d.case(d.x((k,)), d.x((k,)))
    if form == 1:
        return d.case(d.x((k,)), d.x((*lead, k, n)))
    if form == 2:
        return d.case(d.x((*lead, m, k)), d.x((k,)))
    if form == 3:
        return d.case(d.x((*lead, m, k)), d.w((k, n)))
    return d.case(d.x((*d.broadcast(lead), m, k)), d.x((*d.broadcast(lead), k, n)))


@draws("Gemm")
def gemm(d: Draw) -> Case:
    m, k, n = d.size(0, 4), d.size(0, 4), d.size(0, 4)
    given: dict[str, Any] = d.maybe(
        transA=d.int(0, 1), transB=d.int(0, 1), alpha=d.one(0.5, 2.0, -1.0, 0.0),
        beta=d.one(0.5, 2.0, 0.0),
    )  # fmt: skip
    a = (k, m) if given.get("transA") else (m, k)
    b = (n, k) if given.get("transB") else (k, n)
    bias = d.one(None, (), (1,), (n,), (1, n), (m, 1), (m, n), (1, 1))
    return d.case(d.x(a), d.w(b), None if bias is None else d.x(bias), **given)


@draws("Einsum")
def einsum(d: Draw) -> Case:
    """Any subscripts: repeated letters, sums, outer products, ellipses."""
    letters = "abcd"
    sizes = {letter: d.size(0, 3) for letter in letters}
    lead = d.shape(0, 2) if d.flag(0.3) else None
    if lead is not None and any(n > 3 for n in lead):
        lead = (2,)
    terms, inputs = [], []
    for _ in range(d.int(1, 3)):
        chosen = [d.one(*letters) for _ in range(d.int(0, 3))]
        if not d.flag(0.15):
            chosen = sorted(set(chosen), key=chosen.index)
        word = "".join(chosen)
        shape = [sizes[c] for c in word]
        if lead is not None and d.flag(0.8):
            own = [1 if d.flag(0.25) else n for n in lead]
            at = d.int(0, len(word))
            word = f"{word[:at]}...{word[at:]}"
            shape[at:at] = own
        terms.append(word)
        inputs.append(d.x(shape, -1.2, 1.2))
    used = [c for c in letters if any(c in t for t in terms)]
    kept = [c for c in d.rng.permutation(used).tolist() if d.flag(0.6)] if used else []
    dots = any("..." in t for t in terms)
    equation = ",".join(terms)
    if d.flag(0.8):
        at = d.int(0, len(kept))
        out = "".join(kept)
        equation += "->" + (f"{out[:at]}...{out[at:]}" if dots else out)
    if d.flag(0.1):
        equation = " ".join(equation)
        equation = equation.replace("- >", "->").replace(". . .", "...")
    return d.case(*inputs, equation=equation, rough=4.0)


@draws("Det")
def det(d: Draw) -> Case:
    n = d.int(1, 4)
    lead = d.shape(0, 2)
    return d.case(d.x((*lead, n, n)), rough=16.0)
