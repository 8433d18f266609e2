"""Random models whose weights lie in all places that a file has, under names that repeat.

Each layer maps [n, 3] to [n, 3].  A weight is an initializer or a Constant in one of its forms, of
the main graph, of nested bodies of If, Loop and Scan, or of a local function that is called twice.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 3
DOMAIN = "of.this.file"
FORMS = ("initializer", "raw", "floats", "external", "sparse", "list", "lone")


class Drawn:
    """A model that is drawn from a seed; `data` are what lies in its file beside it."""

    def __init__(self, seed, forms=FORMS, depth=2):
        self.rng = np.random.default_rng(seed)
        self.forms, self.functions, self.data, self.count = forms, [], bytearray(), 0
        scope = _Scope(self, {"x", "flag"})
        y = scope.layers("x", depth, at_least=4)
        scope.nodes.append(helper.make_node("Identity", [y], ["y"]))
        graph = helper.make_graph(
            scope.nodes, "drawn",
            [value("x", ["n", WIDTH]), helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
            [value("y", ["n", WIDTH])], scope.tensors,
        )  # fmt: skip
        self.model = helper.make_model(
            graph, ir_version=10, functions=self.functions, producer_name="drawn",
            opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)],
        )  # fmt: skip

    def write(self, folder):
        """Write the model and its data; the path."""
        path = folder / "drawn.onnx"
        path.write_bytes(self.model.SerializeToString())
        (folder / "drawn.bin").write_bytes(self.data)
        return path


class _Scope:
    """A graph or a function that is drawn.

    Its names are none of those around it, nor of those in it: onnxruntime takes that for a name
    given twice, whichever comes first.  Scopes side by side have the same names.
    """

    def __init__(self, drawn, taken, *, holds=True, outer=None):
        self.drawn, self.taken, self.holds, self.outer = drawn, set(taken), holds, outer
        self.nodes, self.tensors, self.rng = [], [], drawn.rng
        self.below = set()

    def inner(self):
        return _Scope(self.drawn, self.taken, holds=self.holds, outer=self)

    def name(self, hint):
        number, found = 0, hint
        while found in self.taken or found in self.below:
            number += 1
            found = f"{hint}{number}"
        self.taken.add(found)
        outer = self.outer
        while outer is not None:
            outer.below.add(found)
            outer = outer.outer
        return found

    def layers(self, x, depth, at_least=1):
        kinds = ["product", "shift", "scale"]
        nested = [self.branches, self.loop, self.scan, self.call]
        for _ in range(at_least + int(self.rng.integers(2))):
            if depth and self.rng.random() < 0.5:
                x = nested[self.rng.integers(len(nested))](x, depth - 1)
            else:
                x = self.layer(x, kinds[self.rng.integers(len(kinds))])
        return x

    def layer(self, x, kind):
        shape = {"product": (WIDTH, WIDTH), "shift": (WIDTH,), "scale": (1,)}[kind]
        op = {"product": "MatMul", "shift": "Add", "scale": "Mul"}[kind]
        held = 0.5 * self.rng.standard_normal(shape).astype(np.float32)
        return self.emit(op, [x, self.weight(held)])

    def emit(self, op, inputs, **attributes):
        y = self.name("h")
        self.nodes.append(helper.make_node(op, inputs, [y], **attributes))
        return y

    def weight(self, held):
        form = self.drawn.forms[self.rng.integers(len(self.drawn.forms))]
        name = self.name("w" if held.ndim > 1 else "b")
        if form == "list" and held.ndim == 1:
            self.constant(name, value_floats=held.tolist())
        elif form == "lone" and held.size == 1:
            self.constant(name, value_float=float(held[0]))
        elif form == "sparse" and self.holds:  # of a function onnxruntime reads what is not there
            self.sparse(name, held)
        elif form == "initializer" and self.holds:
            self.tensors.append(numpy_helper.from_array(held, name))
        else:
            self.constant(name, value=self.dense(held, form))
        return name

    def constant(self, name, **attribute):
        self.nodes.append(helper.make_node("Constant", [], [name], **attribute))

    def dense(self, held, form):
        if form == "floats":
            return helper.make_tensor("inner", TensorProto.FLOAT, held.shape, held.ravel())
        tensor = numpy_helper.from_array(held)
        if form == "external":
            place = {"location": "drawn.bin", "offset": len(self.drawn.data)}
            self.drawn.data += tensor.raw_data
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, entry in (place | {"length": held.nbytes}).items():
                tensor.external_data.add(key=key, value=str(entry))
        return tensor

    def sparse(self, name, held):
        places = np.flatnonzero(self.rng.random(held.size) < 0.6)
        places = places if len(places) else np.arange(1)
        values = numpy_helper.from_array(held.ravel()[places], name)
        if held.ndim > 1 and self.rng.random() < 0.5:
            places = np.stack(np.unravel_index(places, held.shape), -1)
        indices = numpy_helper.from_array(places.astype(np.int64))
        self.constant(name, sparse_value=helper.make_sparse_tensor(values, indices, held.shape))

    def branches(self, x, depth):
        bodies, flag = {}, "flag" if "flag" in self.taken else self.yes()
        for which in ("then_branch", "else_branch"):
            inner = self.inner()
            y = inner.layers(x, depth)
            bodies[which] = helper.make_graph(
                inner.nodes, which, [], [value(y, ["n", WIDTH])], inner.tensors
            )
        return self.emit("If", [flag], **bodies)

    def yes(self):
        name = self.name("yes")
        self.constant(name, value=numpy_helper.from_array(np.array(True)))
        return name

    def loop(self, x, depth):
        turns = self.name("turns")
        self.constant(turns, value=numpy_helper.from_array(np.array(2)))
        inner = self.inner()
        turn, go, state = inner.name("turn"), inner.name("go"), inner.name("state")
        y = inner.layers(state, depth)
        on = inner.name("on")
        inner.nodes.append(helper.make_node("Identity", [go], [on]))
        body = helper.make_graph(
            inner.nodes, "body",
            [helper.make_tensor_value_info(turn, TensorProto.INT64, []),
             helper.make_tensor_value_info(go, TensorProto.BOOL, []), value(state, ["n", WIDTH])],
            [helper.make_tensor_value_info(on, TensorProto.BOOL, []), value(y, ["n", WIDTH])],
            inner.tensors,
        )  # fmt: skip
        return self.emit("Loop", [turns, "", x], body=body)

    def scan(self, x, depth):
        rows = self.weight(0.5 * self.rng.standard_normal((2, WIDTH)).astype(np.float32))
        inner = self.inner()
        state, row = inner.name("state"), inner.name("row")
        y = inner.layers(state, depth)
        last = inner.emit("Add", [y, row])
        body = helper.make_graph(
            inner.nodes, "body", [value(state, ["n", WIDTH]), value(row, [WIDTH])],
            [value(last, ["n", WIDTH])], inner.tensors,
        )  # fmt: skip
        return self.emit("Scan", [x, rows], body=body, num_scan_inputs=1)

    def call(self, x, depth):
        self.drawn.count += 1
        called = f"f{self.drawn.count}"
        inner = _Scope(self.drawn, {"z"}, holds=False)
        y = inner.layers("z", depth)
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
        made = helper.make_function(DOMAIN, called, ["z"], [y], inner.nodes, opsets)
        self.drawn.functions.append(made)
        x = self.emit(called, [x], domain=DOMAIN)
        return self.emit(called, [x], domain=DOMAIN)


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def blank(model):
    """The model without the numbers of its floats, for comparison: all the rest must be as it was.

    Which numbers a sparse tensor leaves out is among them.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _blank(copy)
    return copy.SerializeToString(deterministic=True)


_NUMBERS = ("raw_data", "float_data", "external_data")


def _blank(message):
    if isinstance(message, onnx.TensorProto) and message.data_type == TensorProto.FLOAT:
        for field in _NUMBERS:
            message.ClearField(field)
        return
    if isinstance(message, onnx.SparseTensorProto):
        message.ClearField("values")
        message.ClearField("indices")
        return
    if isinstance(message, onnx.AttributeProto):
        for field in ("f", "floats"):
            message.ClearField(field)
    for field, inner in message.ListFields():
        if field.message_type is not None:
            for each in inner if field.is_repeated else [inner]:
                _blank(each)
