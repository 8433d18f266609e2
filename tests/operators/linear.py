"""Cases of the linear family."""

from __future__ import annotations

from cases import case, integers

for left, right in (
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 6, 3, 4), (4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((2, 6, 3, 4), (6, 4, 5)),
    ((6, 3, 4), (2, 1, 4, 5)),
    ((1, 1), (1, 1)),
):
    case("MatMul", left, right)
case("MatMul", integers([[1, 2], [3, 4]]), integers([[5], [6]]), gradient=False)

for flip_a in (0, 1):
    for flip_b in (0, 1):
        shapes = (4, 3) if flip_a else (3, 4), (5, 4) if flip_b else (4, 5)
        case("Gemm", *shapes, transA=flip_a, transB=flip_b)
        case("Gemm", *shapes, (5,), transA=flip_a, transB=flip_b, alpha=0.5, beta=1.5)
for bias in ((3, 5), (1, 5), (3, 1), (1,), ()):
    case("Gemm", (3, 4), (4, 5), bias)
    case("Gemm", (3, 4), (4, 5), bias, alpha=2.0, beta=0.25)
case("Gemm", (3, 4), (4, 5), (5,), beta=0.0)

for equation, *shapes in (
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)),
    ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
    ("ijb,jkb->ikb", (3, 4, 2), (4, 5, 2)),
    ("...ij,...jk->...ik", (1, 3, 4), (2, 4, 5)),
    ("...ij,...jk->...ik", (6, 1, 3, 4), (1, 2, 4, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,i", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij,ij->j", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("bii,ij->bj", (2, 3, 3), (3, 4)),
    ("ij,k->i", (3, 4), (5,)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("bi,ijk,bk->bj", (2, 3), (3, 4, 5), (2, 5)),
    (",ij->ij", (), (3, 4)),
    ("b...d,...d->b...", (2, 3, 4), (3, 4)),
):
    case("Einsum", *shapes, equation=equation)
