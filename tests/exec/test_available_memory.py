import pytest

import gradtool as gt
from gradtool.errors import DeviceError
from gradtool.exec import available_memory
from gradtool.exec.device import open_device

X = "float[268435456] x"
SUM = f"g ({X}) => (float loss) {{ loss = ReduceSum <keepdims = 0> (x) }}"


@pytest.fixture
def little(monkeypatch):
    """A machine with 1 GiB free."""
    monkeypatch.setattr(available_memory, "memory", lambda: (2**30, 2**31))
    monkeypatch.setattr(available_memory, "_addresses", lambda: None)


@pytest.mark.usefixtures("little")
def test_an_arena_that_memory_cannot_hold_is_refused():
    with pytest.raises(DeviceError, match="no room for an arena of 2147483648 bytes; 1073741824 "):
        open_device("cpu").empty(2**31)


@pytest.mark.usefixtures("little")
def test_inputs_that_memory_cannot_hold_are_not_drawn(model):
    with pytest.raises(DeviceError, match="no room for inputs of 4294967296 bytes"):
        gt.run(gt.load(model(SUM)))


def test_the_limit_of_addresses_counts(monkeypatch):
    monkeypatch.setattr(available_memory, "memory", lambda: (None, None))
    monkeypatch.setattr(available_memory, "_addresses", lambda: 2**29)

    with pytest.raises(DeviceError, match="536870912 are free"):
        available_memory.require(2**30, "it")


def test_what_is_small_is_taken_without_asking(monkeypatch):
    monkeypatch.setattr(available_memory, "memory", lambda: (0, 0))

    available_memory.require(2**20, "it")


def test_a_system_that_does_not_tell_is_believed_to_have_room(monkeypatch):
    monkeypatch.setattr(available_memory, "memory", lambda: (None, None))
    monkeypatch.setattr(available_memory, "_addresses", lambda: None)

    available_memory.require(2**60, "it")
