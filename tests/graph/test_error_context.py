import numpy as np
import pytest
from conftest import build

from gradtool.errors import UsageError
from gradtool.graph.error_context import NodeFailed, blamed


def test_a_complaint_names_the_node_and_the_reason():
    with (
        pytest.raises(NodeFailed, match=r"Add node 'n': its kernel fails on it \(KeyError: 'k'"),
        blamed(lambda: "Add node 'n'", "its kernel"),
    ):
        raise KeyError("k")


def test_what_was_said_on_purpose_stays_as_it_is():
    with pytest.raises(UsageError, match=r"^no$"), blamed(lambda: "n", "its kernel"):
        raise UsageError("no")


def test_a_mistake_of_ours_stays_a_bug():
    with pytest.raises(NameError), blamed(lambda: "n", "its kernel"):
        raise NameError("nothing of that name")


LABELS = """g (float[2, 3] x, int64[2, 3] i) => (float loss) {
    y = GatherElements <axis = 1> (x, i)
    loss = ReduceSum <keepdims = 0> (y)
}"""


def test_an_input_that_a_kernel_cannot_take_is_one_line_and_more_on_request(run, model, tmp_path):
    path = model(build(LABELS))
    np.savez(tmp_path / "i.npz", x=np.ones((2, 3), np.float32), i=np.full((2, 3), 9, np.int64))

    outcome = run("-q", "run", path, "--inputs", "i.npz")

    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "its kernel fails on it (IndexError" in outcome.err

    outcome = run("-v", "run", path, "--inputs", "i.npz")

    assert outcome.code == 2
    assert "Traceback" in outcome.err
