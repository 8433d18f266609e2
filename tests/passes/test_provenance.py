"""What an exporter says of nodes: module, class and line."""

from __future__ import annotations

import time

import onnx_ir as ir
import pytest

from gradtool.graph.metadata import CLASSES, SCOPES, TRACE
from gradtool.passes.provenance import LONGEST, operation, place

OWN = 'File "/home/me/model.py", line 41, in forward\n    return self.linear1(x)'
LIBRARY = '  File "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", line 125, in forward'


def node(**notes):
    keys = {"scopes": SCOPES, "classes": CLASSES, "trace": TRACE}
    props = {keys[name]: text for name, text in notes.items()}
    return ir.Node("", "Gemm", [], metadata_props=props)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, ""),
        ({"trace": OWN}, ""),
        ({"scopes": "['', 'head', 'linear']"}, "head"),
        ({"scopes": "['', 'head', 'linear']", "trace": OWN}, "head (model.py:41)"),
        ({"scopes": "['', 'a', 'a.0', 'linear']", "trace": f"{OWN}\n{LIBRARY}"},
         "a.0 (model.py:41)"),
        ({"scopes": "['', 'a', 'linear']", "trace": LIBRARY}, "a (linear.py:125)"),
        ({"scopes": "['', 'a', 'linear']", "trace": "nothing of the kind"}, "a"),
        ({"scopes": "['', 'relu']", "classes": "['my.net.Net', 'aten.relu']"}, "Net"),
        ({"scopes": "['', 'relu']", "classes": "['my.Net', 'aten']", "trace": OWN},
         "Net (model.py:41)"),
        ({"scopes": '["it\'s", "relu"]', "trace": OWN}, "it's (model.py:41)"),
        ({"scopes": "['', 'a', 'linear']", "trace": OWN.replace("/home/me/", "C:\\\\me\\\\")},
         "a (model.py:41)"),
    ],
)  # fmt: skip
def test_a_place_is_module_and_line(notes, expected):
    assert place(node(**notes)) == expected


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[1, 2]", "['a', 2]", "['a'", "'a', 'b'", "__import__('os')", "['a'] + ['b']",
     "['a' 'b']", "[*'ab']", "['" + "a" * LONGEST + "', 'b']"],
)  # fmt: skip
def test_what_is_no_list_of_strings_says_nothing(text):
    assert (place(node(scopes=text)), operation(node(scopes=text))) == ("", "")


@pytest.mark.parametrize(
    "text",
    ["['a'{n}x", "[{n}", "['a',{n}x", "['a'{n},x"],
)
def test_long_notes_take_linear_time(text):
    """Ten times the blanks take no hundred times as long."""
    spent = []
    for size in (LONGEST // 10, LONGEST - 10):
        wrong = node(scopes=text.format(n=" " * size))
        begin = time.process_time()
        for _ in range(5):
            assert place(wrong) == ""
        spent.append(time.process_time() - begin)

    assert spent[1] < 40 * spent[0] + 0.05
