"""The interface itself; the operators are tested by the standard's suite."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gradtool import backend
from gradtool.errors import UsageError

INFO = onnx.helper.make_tensor_value_info


@pytest.fixture
def model():
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"]),
        onnx.helper.make_node("Relu", ["h"], ["y"]),
    ]
    w = onnx.numpy_helper.from_array(np.float32([[1, -1], [2, 0.5]]), "w")
    graph = onnx.helper.make_graph(
        nodes, "g", [INFO("x", 1, ["batch", 2])], [INFO("y", 1, ["batch", 2])], [w]
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_inputs_are_by_position_or_by_name(model):
    x = np.float32([[1, 2]])
    prepared = backend.prepare(model)

    np.testing.assert_array_equal(prepared.run([x])[0], [[5, 0]])
    np.testing.assert_array_equal(prepared.run({"x": x})["y"], [[5, 0]])
    np.testing.assert_array_equal(backend.run_model(model, x).y, [[5, 0]])


def test_sizes_may_differ_from_run_to_run(model):
    prepared = backend.prepare(model)

    assert [prepared.run([np.ones((n, 2), np.float32)])[0].shape for n in (3, 1, 3)] == [
        (3, 2), (1, 2), (3, 2)
    ]  # fmt: skip


def test_a_node_runs_by_itself():
    node = onnx.helper.make_node("Add", ["a", "b"], ["c"])

    found = backend.run_node(node, [np.float32([1, 2]), np.float32([3, 4])])

    np.testing.assert_array_equal(found[0], [4, 6])


def test_a_node_of_an_older_opset():
    node = onnx.helper.make_node("Squeeze", ["x"], ["y"], axes=[0])

    assert backend.run_node(node, [np.ones((1, 3))], opset_version=11)[0].shape == (3,)


def test_inputs_that_are_missing_or_too_many_are_named(model):
    with pytest.raises(UsageError, match="'x' is not given"):
        backend.prepare(model).run([])
    with pytest.raises(UsageError, match="2 inputs are given, the model takes 1"):
        backend.prepare(model).run([np.ones((1, 2), np.float32)] * 2)


def test_only_the_cpu_is_supported(model):
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="CPU"):
        backend.prepare(model, "CUDA")


def test_an_initializer_takes_what_is_given_by_its_name_and_nothing_is_left_aside():
    graph = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2] x) => (float[2] y) <float[2] bias = {1, 2}> { y = Add (x, bias) }"""
    )
    prepared = backend.prepare(graph)
    x = np.zeros(2, np.float32)

    for held in ([1, 2], [3, 4], [1, 2]):
        given = {} if held == [1, 2] else {"bias": np.array(held, np.float32)}
        np.testing.assert_array_equal(prepared.run({"x": x, **given})[0], held)
    with pytest.raises(UsageError, match="no input 'biass'; did you mean 'bias'"):
        prepared.run({"x": x, "biass": x})
