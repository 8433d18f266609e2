"""Sizes of many symbols have names of their own, so that work grows with the file, not faster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import pytest
from many_sizes import SIZES
from many_sizes import made as written

import gradtool as gt
from gradtool import io
from gradtool.errors import ModelError
from gradtool.graph import walk
from gradtool.graph.deciding import is_inferred
from gradtool.graph.limits import Limits
from gradtool.graph.summarized import LONGEST, MOST_SYMBOLS, evaluated, follow, summarized

N = 11


def made(kind: str, size: int, **options: object) -> ir.Model:
    return gt.load(written(kind, size), **options)


def texts(model: ir.Model) -> Iterator[str]:
    for node in walk.nodes(model.graph):
        for value in node.outputs:
            yield from (str(d) for d in value.shape or () if not isinstance(d, int))


def total(count: int) -> ir.SymbolicDim:
    return ir.SymbolicDim(" + ".join(f"n{i}" for i in range(count)))


def test_a_size_of_few_symbols_is_written_out() -> None:
    few = total(MOST_SYMBOLS)

    assert summarized(few) is few


def test_a_long_size_has_a_name_that_no_flag_gives() -> None:
    name = summarized(total(MOST_SYMBOLS + 1))

    assert is_inferred(str(name))
    assert name == summarized(total(MOST_SYMBOLS + 1))
    assert name != summarized(total(MOST_SYMBOLS + 2))


def test_what_may_be_negative_says_so_in_its_name() -> None:
    assert str(summarized(total(MOST_SYMBOLS + 1), sure=False)).startswith("_v_")


def test_a_name_is_evaluated_by_what_it_stands_for() -> None:
    size: int | ir.SymbolicDim = ir.SymbolicDim("n0")
    for i in range(1, 40):
        size = summarized(size + ir.SymbolicDim(f"n{i}"))

    assert evaluated(size * 2 + 1, {"n3": 10}, lambda _name: 1) == 2 * (39 + 10) + 1


def test_a_chain_and_one_joint_have_the_same_size() -> None:
    sizes = {str(made(kind, N).graph.node(-2).outputs[0].shape[0]) for kind in ("chain", "fan")}

    assert len(sizes) == 1


@pytest.mark.sample(9)
@pytest.mark.parametrize("kind", SIZES)
def test_no_size_is_written_out_at_length(kind) -> None:
    graph = gt.grad(made(kind, N))

    assert max(map(len, texts(graph.model)), default=0) <= LONGEST


@pytest.mark.exhaustive
@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["chain", "added", "padded"])
def test_backward_grows_as_forward_does(kind) -> None:
    """Three times as many sizes are about three times as many nodes, not nine."""
    few, many = (len(list(gt.grad(made(kind, n)).model.graph)) for n in (N, 3 * N))

    assert many < 4 * few


def test_a_long_size_that_may_be_0_is_one_less_than_its_name() -> None:
    """Else what is left of it without its first element would be taken for -1."""
    size = summarized(total(MOST_SYMBOLS + 1) - MOST_SYMBOLS - 1)

    assert str(size).endswith(" - 1")
    assert evaluated(size, {}, lambda _name: 1) == 0


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("kind", "turns"),
    [*((kind, 3) for kind in sorted(SIZES.keys() - {"branched"})), ("sliced", 1)],
)
def test_gradients_of_open_sizes_are_those_of_given_ones(kind, turns, tmp_path) -> None:
    sizes = {f"n{i}": 2 if kind in ("added", "chosen") else 1 + i % turns for i in range(N)}
    file = tmp_path / "open.onnx"
    gt.save(gt.grad(made(kind, N)), file)
    fixed = gt.grad(made(kind, N, dims=sizes))
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.random([int(d) for d in v.shape], np.float32)
        for v in fixed.model.graph.inputs if v.const_value is None
    }  # fmt: skip

    expected = gt.run(fixed, feeds).gradients
    actual = gt.run(gt.load(file, dims=sizes), feeds).gradients

    assert expected.keys() == actual.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(actual[name], gradient, rtol=1e-4, atol=1e-6)


def test_more_open_sizes_than_the_limit_are_refused_by_name(tmp_path) -> None:
    said = r"its inputs have 11 open sizes \(n0, n1, n2 and 8 more\); the limit is 10: give others"
    file = tmp_path / "many.onnx"
    file.write_bytes(written("alone", N).SerializeToString())

    with pytest.raises(ModelError, match=said):
        io.load(str(file), limits=Limits(symbols=10))
    io.load(str(file), limits=Limits(symbols=10), dims={"n4": 2})


def test_a_size_follows_from_the_symbols_that_its_name_stands_for() -> None:
    size = summarized(total(MOST_SYMBOLS + 1)) + ir.SymbolicDim("m")
    given = {f"n{i}" for i in range(MOST_SYMBOLS + 1)}

    assert follow([size, 3], {*given, "m"})
    assert not follow([size], given)
    assert not follow([size], {*given - {"n2"}, "m"})
    assert not follow([ir.SymbolicDim(None)], given)
