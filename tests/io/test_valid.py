"""What is written was checked: for ONNX's checker, for stock onnxruntime, and within a time."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from gradtool import io
from gradtool.errors import InvalidResult
from gradtool.io import checkable, streamed_proto, valid
from gradtool.io.checkable import AtOnce

RELU = "g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu (x) }"
pytestmark = pytest.mark.stock
installed = pytest.mark.skipif(not valid.is_installed(), reason="needs onnxruntime")


def broken(model):
    """Let the first node read what nothing writes."""
    model.graph[0].replace_input_with(0, ir.Value(name="lost"))


def test_an_invalid_model_is_not_written_and_its_node_is_named(write, tmp_path):
    model = io.load(write(RELU.replace("y = Relu", "[relu] y = Relu")))

    with pytest.raises(InvalidResult, match=r"nothing was written: .*'lost' of node: name: relu"):
        io.save(model, tmp_path / "out.onnx", finish=broken)
    assert not (tmp_path / "out.onnx").exists()
    assert InvalidResult("a", "b").exit_code == 70


def test_an_invalid_half_leaves_the_other_unwritten(write, tmp_path):
    model = io.load(write(RELU))
    pair = [(model, tmp_path / "a.onnx"), (model, tmp_path / "b.onnx")]
    calls = []

    def second(copy):
        calls.append(copy)
        if len(calls) == 2:
            broken(copy)

    with pytest.raises(InvalidResult):
        io.save_together(pair, io.WriteOptions(finish=second))
    assert not (tmp_path / "a.onnx").exists()


def branch_of(tensor):
    """A branch that reads a weight of its own."""
    result = helper.make_tensor_value_info("r", 1, tensor.dims)
    return helper.make_graph(
        [helper.make_node("Neg", ["w"], ["r"])], "then", [], [result], [tensor]
    )


def test_a_weight_that_a_branch_returns_is_kept():
    heavy = onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    given = helper.make_tensor_value_info("w", 1, [64, 64])
    inner = helper.make_graph([], "then", [], [given], [heavy])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    made = helper.make_tensor_value_info("y", 1, [64, 64])
    proto = helper.make_model(helper.make_graph([branch], "g", [condition], [made]))

    assert checkable.leave_out_weights(proto.graph, {"c"}) == set()
    onnx.checker.check_model(proto, full_check=True)


def test_weights_are_left_out_of_what_is_checked():
    heavy = onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    inner = branch_of(heavy)
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    graph = helper.make_graph(
        [branch], "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, [])], []
    )
    proto = helper.make_model(graph)
    names = checkable.leave_out_weights(proto.graph, {"c"})

    assert names == {"w"}
    assert [value.name for value in proto.graph.input] == ["c", "w"]
    assert proto.ByteSize() < 1000


@pytest.mark.parametrize("scale", ["{0.7}", "{1.5}"])
def test_a_scale_by_which_the_checker_rounds_otherwise_is_left_out(text, scale):
    """10 × 0.7 is 6 there, and 7 wherever it runs."""
    size = 7 if "7" in scale else 15
    proto = text(f"""g (float[10] x) => (float[{size}] y) <float[1] s = {scale}> {{
        y = Resize <mode = "linear"> (x, , s)
    }}""")
    checkable.leave_out_scales(proto)
    onnx.checker.check_model(proto, full_check=True)

    assert [tensor.name for tensor in proto.graph.initializer] == ([] if size == 7 else ["s"])


def test_a_model_whose_source_is_refused_too_is_written(write, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(checkable, "refusal", lambda _: "no reason")
    io.save(io.load(write(RELU)), tmp_path / "out.onnx", say=heard.append)

    assert heard == ["ONNX's checker refuses the source as it does the result: no reason"]
    assert (tmp_path / "out.onnx").exists()


@installed
def test_onnxruntime_is_asked_in_a_process_of_its_own(text):
    session = valid.Session()
    answer = session.ask(text(RELU).SerializeToString(), seconds=60)
    session.close()

    assert answer == valid.Answer(loads=True)


@installed
def test_what_onnxruntime_refuses_names_the_node(text):
    proto = text("g (float[4] x) => (float[4] y) { [gone] y = Relu (lost) }")
    session = valid.Session("ORT_DISABLE_ALL")
    answer = session.ask(proto.SerializeToString(), seconds=60)

    assert answer is not None
    assert not answer.loads
    assert "lost" in answer.reason


@installed
def test_an_operator_without_a_kernel_is_no_fault_of_a_model(text):
    proto = text("g (bfloat16[4] x) => (bfloat16[4] y) { y = Acos (x) }", opset=23)
    session = valid.Session()

    assert session.ask(proto.SerializeToString(), seconds=60) is None


@installed
def test_an_answer_is_waited_for_no_longer_than_is_asked(text):
    session = valid.Session()

    assert session.ask(text(RELU).SerializeToString(), seconds=1e-4) is None
    session.close()


def test_a_session_that_reads_nothing_is_closed_with_its_pipes(monkeypatch):
    monkeypatch.setattr(valid, "_CHILD", "import time; time.sleep(60)")
    session = valid.Session()

    assert session.ask(bytes(1 << 20), seconds=0.1) is None  # more than a pipe holds
    session.close()
    assert session._process.stdin.closed
    assert session._process.stdout.closed
    assert session._process.returncode is not None


CRASH = "import os, signal, sys; sys.stdin.buffer.read(); os.kill(os.getpid(), signal.SIGSEGV)"


def test_a_death_of_onnxruntime_is_an_answer(text, monkeypatch):
    monkeypatch.setattr(valid, "_CHILD", CRASH)
    answer = valid.Session().ask(text(RELU).SerializeToString(), seconds=60)

    assert answer == valid.Answer(loads=False, reason="it died (signal 11)")


def answers(monkeypatch, found):
    """Let onnxruntime say this of each level, for the result and for the source."""

    class Session:
        def __init__(self, level="ORT_ENABLE_ALL"):
            self.level = level

        def ask(self, _model, _seconds):
            return found[self.level].pop(0)

        def close(self):
            pass

    monkeypatch.setattr(valid, "Session", Session)
    monkeypatch.setattr(valid, "is_installed", lambda: True)


YES, NO = valid.Answer(loads=True), valid.Answer(loads=False, reason="Node (add) is\nodd")


def test_what_onnxruntime_refuses_is_not_written(write, tmp_path, monkeypatch):
    answers(monkeypatch, {"ORT_ENABLE_ALL": [NO], "ORT_DISABLE_ALL": [NO, YES]})

    with pytest.raises(InvalidResult, match=r"onnxruntime refuses the result.*Node \(add\) is odd"):
        io.save(io.load(write(RELU)), tmp_path / "out.onnx", stock=True)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    ("plain", "said"),
    [([YES], "with ORT_DISABLE_ALL only; else: Node"), ([NO, NO], "refuses the source as it does")],
)
def test_what_is_no_defect_of_the_result_is_said(write, tmp_path, monkeypatch, plain, said):
    answers(monkeypatch, {"ORT_ENABLE_ALL": [NO], "ORT_DISABLE_ALL": plain})
    heard = []
    io.save(io.load(write(RELU)), tmp_path / "out.onnx", stock=True, say=heard.append)

    assert said in heard[0]
    assert (tmp_path / "out.onnx").exists()


def test_weights_of_subgraphs_and_notes_are_left_out_of_what_is_checked():
    heavy = onnx.numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    inner = branch_of(heavy)
    branch = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    plain = helper.make_node("Neg", ["y"], ["z"])
    for node in (branch, plain):
        node.metadata_props.add(key="gradtool.stage", value="forward")
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = helper.make_model(helper.make_graph([branch, plain], "g", [condition], []))
    graph = ir.serde.deserialize_model(model)
    found = AtOnce()
    found.begin(streamed_proto.before_nodes(graph))
    for run in streamed_proto.runs(graph):
        found.add(run)

    assert found.end(streamed_proto.around(graph)) is None
    checked = onnx.ModelProto.FromString(found.message)
    assert found.nodes == 2
    assert [value.name for value in checked.graph.input] == ["c", "w"]
    assert [node.op_type for node in checked.graph.node] == ["If", "Neg"]
    assert not any(node.metadata_props for node in checked.graph.node)
