"""What reads one number, one for each axis or one for each output is given so many."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from gradtool import io
from gradtool.errors import ModelError
from gradtool.io import lengths
from gradtool.io.checkable import AtOnce

SINGLE = [
    (op, slot) for op, rules in lengths.RULES.items() for slot, _, what in rules if what == "one"
]
STFT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[2, 12, 1] x) => (float[2, n, 3, 2] y) <int64[0] step = {}, float[4] w = {1, 1, 1, 1}>
{ y = STFT <onesided=1> (x, step, w) }"""


def node(op, slot, size):
    """A node whose inputs have four axes, but for one vector."""
    inputs = [ir.Value(name=f"x{i}", shape=ir.Shape([2] * 4)) for i in range(5)]
    inputs[slot].shape = ir.Shape([size])
    return ir.Node("", op, inputs)


@pytest.mark.parametrize(("op", "slot"), SINGLE)
def test_one_number_is_one(op, slot):
    others = [i for i, _, what in lengths.RULES[op] if what == "one" and i != slot]
    given = {size: node(op, slot, size) for size in (0, 1, 2)}
    for each in given.values():
        for other in others:
            each.inputs[other].shape = ir.Shape([])

    assert lengths.broken(given[1]) is None
    assert f"'x{slot}' has 0 numbers; there must be 1" in lengths.broken(given[0])
    assert f"'x{slot}' has 2 numbers; there must be 1" in lengths.broken(given[2])


def test_a_step_that_is_no_number_is_refused_when_the_file_is_loaded(tmp_path):
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(STFT).SerializeToString())

    with pytest.raises(ModelError, match="STFT node that writes 'y': "):
        io.load(tmp_path / "m.onnx")


def test_a_checker_that_fails_refuses():
    proto = onnx.parser.parse_model(STFT)
    graph = AtOnce()
    graph.begin(proto.graph)
    reason = graph.end(proto)

    assert reason is not None
    assert reason.startswith("it fails with IndexError: ")
