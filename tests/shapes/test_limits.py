import onnx_ir as ir
import pytest
from graphs import parse

from gradtool import shapes
from gradtool.errors import ModelError
from gradtool.graph.limits import Limits
from gradtool.shapes.limits import ImpossibleShape, least_bytes, within

PAD = "g (float[n] x) => (y) { s = Constant <value_ints = [-3, -3]> () y = Pad (x, s) }"
GROW = "g (float[n] x) => (y) { y = Concat <axis = 0> (x, x) }"


def test_a_size_that_is_negative_is_refused_where_it_arises():
    with pytest.raises(ModelError, match=r"has shape \[-2\]; no size may be negative"):
        parse(PAD.replace("n]", "4]"))


def test_a_size_that_turns_negative_when_symbols_get_sizes_is_refused_then():
    model = parse(PAD)
    model.graph.inputs[0].shape = ir.Shape([4])

    with pytest.raises(ImpossibleShape, match=r"has shape \[-2\]"):
        shapes.infer(model)


def test_limits_are_those_that_were_asked_for():
    model = parse(GROW.replace("n]", "100]"))

    with within(Limits(value_bytes=800)):
        shapes.infer(model)
    with (
        within(Limits(value_bytes=799)),
        pytest.raises(ImpossibleShape, match="800 bytes; the limit is 799"),
    ):
        shapes.infer(model)


def test_sizes_of_zero_hold_no_bytes_but_strides_that_arrays_must_have():
    assert least_bytes([0, 2**62], ir.DataType.FLOAT) == 2**64


def test_four_bits_are_half_a_byte_and_text_is_a_reference():
    assert least_bytes([10], ir.DataType.INT4) == 5
    assert least_bytes([10], ir.DataType.STRING) == 80


def test_a_node_without_a_name_is_named_by_what_it_writes():
    with pytest.raises(ModelError, match=r"^Pad node that writes 'y': output 'y' has shape"):
        parse(PAD.replace("n]", "4]"))
