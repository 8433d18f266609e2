"""Models that several commands are tried on."""

import pytest
from deep import deep


@pytest.fixture
def net(model):
    """`deep.onnx`, whose batch is open."""
    return model(deep(), "deep.onnx")


@pytest.fixture
def fixed(model):
    """`fixed.onnx`: the same with a batch of 256."""
    return model(deep("256"), "fixed.onnx")
