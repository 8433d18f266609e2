"""Sizes of pools, of open images too."""

from __future__ import annotations

import itertools

import pytest
from graphs import parse

import gradtool as gt
from gradtool.operators.windows import Window


def sizes(attributes: str, image: object) -> str:
    text = f"g (float[1, 1, {image}] x) => (float[1, 1, o] y) {{ y = MaxPool <{attributes}> (x) }}"
    return parse(text).graph.outputs[0].shape[2]


@pytest.mark.exhaustive
@pytest.mark.parametrize("ceil", [0, 1])
def test_an_open_image_has_as_many_windows_as_a_known_one(ceil):
    for kernel, stride, dilation in itertools.product((1, 2, 3), (1, 2, 4), (1, 2)):
        for begin, end in ((0, 0), (kernel - 1, 0), (0, kernel - 1)):
            given = {"strides": [stride], "dilations": [dilation], "pads": [begin, end]}
            window = Window.of([kernel], (), given)
            written = (
                f"kernel_shape = [{kernel}], strides = [{stride}], dilations = [{dilation}], "
                f"pads = [{begin}, {end}], ceil_mode = {ceil}"
            )
            open_size = sizes(written, "n")
            for n in range(max(1, window.extent[0] - begin - end), 12):
                known = window.count(0, n, ceil=bool(ceil))
                assert sizes(written, n) == known
                assert open_size.evaluate({"n": n}) == known


def test_same_padding_rounds_up():
    given = 'kernel_shape = [3], strides = [2], auto_pad = "SAME_UPPER"'

    assert [sizes(given, "n").evaluate({"n": n}) for n in (1, 4, 5)] == [1, 2, 3]


def test_where_one_element_lacks_there_is_no_window():
    assert sizes("kernel_shape = [3]", 2) == 0


@pytest.mark.parametrize("given", ["kernel_shape = [4]", "kernel_shape = [9], ceil_mode = 1"])
def test_fewer_windows_than_none_are_refused(given):
    with pytest.raises(gt.ModelError, match="no size may be negative"):
        sizes(given, 2)


@pytest.mark.parametrize(
    ("call", "weight"),
    [
        ("MaxPool <kernel_shape = [9], strides = [3], pads = [0, 1]> (x)", ""),
        ("Conv <strides = [3], pads = [0, 1]> (x, w)", ", float[1, 1, 9] w"),
    ],
)
def test_a_window_that_sticks_out_by_less_than_a_step_is_refused(call, weight):
    with pytest.raises(gt.ModelError, match="window of 9 does not fit into the 8 of axis 2"):
        parse(f"g (float[1, 1, 7] x{weight}) => (float[1, 1, o] y) {{ y = {call} }}")
