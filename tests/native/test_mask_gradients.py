import numpy as np
import pytest
from conftest import sampled
from native_attention import HIDING, backward, drawn, exact, shaped
from native_calls import each_instruction_set, needs_library, normal, relative_error, run

import gradtool.native
from gradtool.native import attention
from gradtool.native.mask_gradients import Cut
from gradtool.operators.attention import Extras, shape_of
from gradtool.ops import kernels as registry
from gradtool.ops.shared.call import call, spec_of

pytestmark = [
    needs_library, *each_instruction_set, pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]  # fmt: skip

ROWS = ("ST", "HST", "1HST", "B1ST", "BHST", "111T", "B11T", "BH1T")  # of all columns
KINDS = (*ROWS, "S1", "1H11", "11S1", "BHS1")


def shape_for(kind, n):
    sizes = {"B": n.batch, "H": n.groups * n.heads, "S": n.queries, "T": n.keys, "1": 1}
    return tuple(sizes[letter] for letter in kind)


class Drawn:
    """Attention of which gradients by some masks, of the kind asked for and others, are wanted."""

    def __init__(self, seed, kind, kinds=KINDS):
        rng, self.q, self.k, self.v, masks, self.attributes = drawn(seed, most=5)
        self.attributes["safe"] = 1
        self.n = n = shape_of(self.q, self.k, self.v, **self.attributes)
        if kinds is ROWS:
            masks = [mask for mask in masks if mask.shape[-1] == n.keys]
        for each in (kind, *rng.choice(kinds, rng.integers(3))):
            masks.insert(rng.integers(len(masks) + 1), normal(rng, *shape_for(each, n)))
        if self.attributes["fill"] == HIDING:  # it leaves no digits to what is added later
            masks.sort(key=lambda mask: mask.dtype == np.bool_)
        self.masks = masks
        self.of = [i for i, mask in enumerate(masks) if mask.dtype == np.float32]
        *operands, p, lse = exact(self.q, self.k, self.v, masks, self.attributes)[1:]
        dy = normal(rng, *p.shape[:3], n.value_size)
        dlse = normal(rng, *lse.shape) if rng.integers(2) else None
        whole = backward(n, *operands, masks, p, dy, dlse)
        self.expected = [shaped(a, self.q) for a in whole[:3]] + [whole[3 + i] for i in self.of]
        self.given = [
            None if a is None else np.ascontiguousarray(shaped(a, self.q), np.float32)
            for a in (lse, dy, dlse)
        ]
        self.wanted = [bool(rng.integers(4)) for _ in self.expected]
        self.wanted[3 + rng.integers(len(self.of))] = True

    def room(self, wanted):
        there = self.spread(wanted, self.expected)
        return attention.grad_work(self.n, self.masks, self.of, there[3:])

    def error(self, found, exactly):
        """Relative to the largest, or to what so many sums of slopes may come to that cancel."""
        scores = self.n.batch * self.n.groups * self.n.heads * self.n.queries * self.n.keys
        return relative_error(found, exactly, least=max(1, scores / max(found.size, 1)) ** 0.5)

    def spread(self, wanted, arrays):
        """The outputs that are wanted in their places, None in the others."""
        arrays = iter(a for a, is_wanted in zip(arrays, wanted, strict=True) if is_wanted)
        return [next(arrays) if is_wanted else None for is_wanted in wanted]

    def run(self, wanted):
        """What is wanted, in its places."""

        def bound(*to):
            *to, work = to
            to = iter(to)
            out = [next(to) if is_wanted else None for is_wanted in wanted]
            return attention.attention_grad(
                self.n, self.q, self.k, self.v, *self.given, self.masks, *out[:3], work,
                of=self.of, dmasks=out[3:], fill=self.attributes["fill"],
            )  # fmt: skip

        shapes = [a.shape for a in self.spread(wanted, self.expected) if a is not None]
        found = iter(
            run(
                bound, *shapes, work=self.room(wanted), inputs=(self.q, self.k, self.v, *self.masks)
            )
        )
        return [next(found) if is_wanted else None for is_wanted in wanted]


@pytest.fixture(params=[1 << 21, 1000], ids=["as it is", "many slots"])
def grain(request, monkeypatch):
    """Small work is worth a thread as well: there are parts."""
    monkeypatch.setattr(gradtool.native, "GRAIN", request.param)


@pytest.mark.sample(4)
@pytest.mark.usefixtures("grain")
@pytest.mark.parametrize("seed", sampled(range(12), 9))
@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_float64(kind, seed):
    case = Drawn(seed, kind)
    found = case.run(case.wanted)

    for made, right in zip(found, case.expected, strict=True):
        assert made is None or case.error(made, right) < 1e-5


@pytest.mark.sample(4)
@pytest.mark.usefixtures("grain")
@pytest.mark.parametrize("seed", sampled(range(30)))
def test_whatever_else_is_wanted_each_has_the_same_bits(seed):
    case = Drawn(seed, KINDS[seed % len(KINDS)])
    count = len(case.expected)
    whole = case.run([True] * count)
    for only in range(count):
        found = case.run([i == only for i in range(count)])[only]

        assert found.tobytes() == whole[only].tobytes()


@pytest.mark.parametrize("seed", sampled(range(20)))
def test_where_masks_have_all_columns_they_are_those_of_numpy(seed):
    case = Drawn(seed, ROWS[seed % len(ROWS)], ROWS)
    lse, dy, dlse = (None if a is None else a.astype(float) for a in case.given)
    operands = [case.q, case.k, case.v]
    q, k, v, *masks = (
        a if a.dtype == np.bool_ else a.astype(float) for a in (*operands, *case.masks)
    )
    there = [*operands, *(case.masks[i] for i in case.of)]
    out = [spec_of(a.astype(float)) for a in there]
    kernel = registry.find("ai.gradtool", "FusedAttentionGrad", 1)
    given = [q, k, v, lse, dy, dlse, *Extras(masks).inputs]
    right = call(np, kernel, given, out, case.attributes | {"of": case.of})
    found = case.run([True] * len(right))

    for made, exactly in zip(found, right, strict=True):
        assert case.error(made, exactly) < 1e-5


@pytest.mark.parametrize(
    ("shape", "masks", "slots", "expected"),
    [
        ((6, 4, 3, 5), [(6, 4, 3, 5)], 8, Cut(1, 4, 1, 1)),
        ((6, 4, 3, 5), [(1, 4, 3, 5)], 8, Cut(6, 4, 1, 2)),
        ((6, 12, 3, 5), [(12, 3, 5)], 8, Cut(6, 12, 1, 1)),
        ((6, 4, 3, 5), [(6, 1, 3, 5)], 8, Cut(4, 1, 4, 2)),
        ((6, 4, 3, 5), [(3, 5)], 8, Cut(24, 1, 4, 8)),
        ((6, 4, 3, 5), [(6, 1, 3, 5), (1, 4, 3, 5)], 2, Cut(24, 1, 4, 2)),
        ((1, 1, 3, 5), [(3, 5)], 8, Cut(1, 1, 1, 1)),
        ((6, 1, 3, 5), [(3, 5)], 8, Cut(6, 1, 1, 6)),
        ((8, 1, 2048, 1), [(2048, 1024)], 8, Cut(8, 1, 1, 3)),
        ((8, 1, 4096, 1), [(4096, 4096)], 8, Cut(8, 1, 1, 1)),
    ],
)
def test_what_adds_to_the_same_places_is_a_class(shape, masks, slots, expected):
    q = np.empty(shape, np.float32)
    found = Cut.of(shape_of(q, q, q), [np.empty(mask) for mask in masks], slots)

    assert found == expected


def test_without_a_gradient_by_a_mask_the_workspace_is_the_same():
    q = np.empty((6, 4, 300, 8), np.float32)
    n, mask = shape_of(q, q, q), np.empty((300, 300), np.float32)
    plain = attention.grad_work(n)

    assert attention.grad_work(n, [mask], [0], [None]) == plain
    assert attention.grad_work(n, [mask], [0], [mask]) == plain + 7 * mask.nbytes


@pytest.mark.parametrize("wrong", ["shape", "type", "order"])
def test_a_gradient_that_does_not_lie_as_its_mask_is_refused(wrong):
    q, mask = np.ones((1, 1, 4, 4), np.float32), np.ones((4, 4), np.float32)
    dmask = {"shape": mask[:2], "type": mask.astype(float), "order": mask.T}[wrong]
    n = shape_of(q, q, q)
    work = np.empty(attention.grad_work(n, [mask], [0], [mask]), np.int8)

    with pytest.raises(TypeError, match="gradient of a mask"):
        attention.attention_grad(
            n, q, q, q, q[..., :1].copy(), q, None, [mask], None, None, None, work,
            of=[0], dmasks=[dmask],
        )  # fmt: skip
