"""Files whose nodes do not fit the graphs inside of them, and inputs that no run can be given.

`REFUSED` are models that no run can follow, `VALID` are ones that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

Make = Callable[[], ModelProto]
MOST = 2**63 - 1
FLOAT, INT64, BOOL, STRING = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.BOOL,
    TensorProto.STRING,
)
REFUSED: dict[str, Make] = {}
VALID: dict[str, Make] = {}


def _value(name: str, *dims: int | str, kind: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def _model(
    nodes: Iterable[NodeProto],
    inputs: Iterable[ValueInfoProto] = (),
    initializers: Iterable[TensorProto] = (),
    outputs: Iterable[ValueInfoProto] = (),
) -> ModelProto:
    """A model that sums `y`, beside whatever else it returns."""
    loss = helper.make_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    graph = helper.make_graph(
        [*nodes, loss], "g", list(inputs), [_value("loss"), *outputs], list(initializers)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _int(name: str, number: int) -> TensorProto:
    return helper.make_tensor(name, INT64, [], [number])


X = _value("x", 4)
SAME = helper.make_node("Identity", ["x"], ["y"])

# ------------------------------------------------------------------------------ If, Loop, Scan


def _graph(nodes: Iterable[NodeProto], outputs: Iterable[ValueInfoProto], *inputs: ValueInfoProto):
    return helper.make_graph(list(nodes), "inner", list(inputs), list(outputs))


def _branch(name: str, count: int, op: str = "Exp", kind: int = FLOAT) -> GraphProto:
    names = [f"{name}{index}" for index in range(count)]
    nodes = [helper.make_node(op, ["x"], [n]) for n in names]
    return _graph(nodes, [helper.make_tensor_value_info(n, kind, None) for n in names])


def _if(then: GraphProto, other: GraphProto, made: int = 1, *dims: int) -> ModelProto:
    names = ["y", *(f"y{index}" for index in range(1, made))]
    node = helper.make_node("If", ["c"], names, then_branch=then, else_branch=other)
    return _model([node], [X, _value("c", *dims, kind=BOOL)])


def _if_of(then: int, other: int, made: int) -> ModelProto:
    return _if(_branch("t", then), _branch("e", other), made)


def _loop_of(inputs: int, outputs: int, carried: int, made: int) -> ModelProto:
    """A Loop of so many carried values, whose body has so many inputs and outputs for them."""
    formal = [
        _value("i", kind=INT64),
        _value("k", kind=BOOL),
        *(_value(f"h{j}", 4) for j in range(inputs)),
    ]
    nodes = [helper.make_node("Identity", ["k"], ["k2"])]
    nodes += [helper.make_node("Exp", ["x"], [f"o{j}"]) for j in range(outputs)]
    results = [_value("k2", kind=BOOL), *(_value(f"o{j}", 4) for j in range(outputs))]
    names = ["y", *(f"y{index}" for index in range(1, made))]
    loop = helper.make_node(
        "Loop", ["n", "", *["x"] * carried], names, body=_graph(nodes, results, *formal)
    )
    return _model([loop], [X], [_int("n", 3)])


def _scan_of(
    inputs: int, outputs: int, given: int, made: int, scanned: int = 1, **attributes: list[int]
) -> ModelProto:
    """A Scan of so many inputs, whose body has so many inputs and outputs."""
    body = _graph(
        [helper.make_node("Exp", ["h0"], [f"o{j}"]) for j in range(outputs)],
        [_value(f"o{j}") for j in range(outputs)],
        *(_value(f"h{j}") for j in range(inputs)),
    )
    names = ["y", *(f"y{index}" for index in range(1, made))]
    scan = helper.make_node(
        "Scan", ["x"] * given, names, body=body, num_scan_inputs=scanned, **attributes
    )
    return _model([scan], [X])


for _counts in ((1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 2, 1), (0, 1, 1)):
    REFUSED["an If of {} and {} outputs for {}".format(*_counts)] = lambda c=_counts: _if_of(*c)
VALID["an If of one output"] = lambda: _if_of(1, 1, 1)
REFUSED["an If on four conditions"] = lambda: _if(_branch("t", 1), _branch("e", 1), 1, 4)
REFUSED["an If of two types"] = lambda: _if(_branch("t", 1), _branch("e", 1, "Shape", INT64))
REFUSED["an If whose branch takes an input"] = lambda: _if(
    _branch("t", 1),
    _graph([helper.make_node("Exp", ["q"], ["z"])], [_value("z", 4)], _value("q", 4)),
)
for _counts in ((1, 2, 1, 1), (1, 1, 2, 1), (2, 1, 1, 1), (1, 1, 1, 2), (0, 1, 1, 1), (0, 0, 0, 1)):
    REFUSED["a Loop over {} in, {} out, of {} carried, {} made".format(*_counts)] = (
        lambda c=_counts: _loop_of(*c)
    )
VALID["a Loop that carries one value"] = lambda: _loop_of(1, 1, 1, 1)
for _counts in ((1, 2, 1, 1), (1, 1, 2, 1), (2, 1, 1, 1), (1, 1, 1, 2), (1, 1, 1, 1, 2),
                (1, 1, 1, 1, 0), (1, 1, 1, 1, -1), (1, 1, 1, 1, MOST)):  # fmt: skip
    REFUSED[f"a Scan with {_counts} inputs, outputs, given, made, scanned"] = lambda c=_counts: (
        _scan_of(*c)
    )
REFUSED["a Scan along two axes of one input"] = lambda: _scan_of(1, 1, 1, 1, scan_input_axes=[0, 0])
VALID["a Scan of one input"] = lambda: _scan_of(1, 1, 1, 1)

for _parts in (5, 2**31, MOST, 0, -1):
    REFUSED[f"a Split of two outputs into {_parts}"] = lambda parts=_parts: _model(
        [helper.make_node("Split", ["x"], ["y", "z"], num_outputs=parts)], [X]
    )
for _size in (0, -1):
    REFUSED[f"a sequence of parts of {_size}"] = lambda size=_size: _model(
        [
            helper.make_node("SplitToSequence", ["x", "n"], ["q"]),
            helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0),
        ],
        [X],
        [_int("n", size)],
    )

# -------------------------------------------------------------------- strings and sequences

_TEXT = helper.make_node("Constant", [], ["t"], value_string="hello")
_TEXTS = helper.make_node("Constant", [], ["t"], value_strings=["a", "b"])
_TWICE = helper.make_node("StringConcat", ["t", "t"], ["u"])
VALID["a string that nothing reads"] = lambda: _model([_TEXT, SAME], [X])
VALID["a string that is an output"] = lambda: _model(
    [_TEXT, SAME], [X], outputs=[_value("t", kind=STRING)]
)
_EQUAL = [
    helper.make_node("Equal", ["u", "t"], ["same"]),
    helper.make_node("Cast", ["same"], ["f"], to=FLOAT),
    helper.make_node("ReduceSum", ["f"], ["all"], keepdims=0),
    helper.make_node("Mul", ["x", "all"], ["y"]),
]
VALID["a string computed of a constant"] = lambda: _model([_TEXTS, _TWICE, *_EQUAL], [X])
VALID["a string computed of an initializer"] = lambda: _model(
    [_TWICE, *_EQUAL], [X], [helper.make_tensor("t", STRING, [2], [b"a", b"b"])]
)
VALID["a string computed of an input"] = lambda: _model(
    [_TWICE, *_EQUAL], [X, _value("t", 4, kind=STRING)]
)
_SEQUENCE = helper.make_tensor_sequence_value_info("q", FLOAT, [4])
VALID["a sequence for an input"] = lambda: _model(
    [helper.make_node("SequenceAt", ["q", "i"], ["h"]), helper.make_node("Mul", ["h", "x"], ["y"])],
    [X, _SEQUENCE],
    [_int("i", 0)],
)
VALID["a sequence that nothing reads"] = lambda: _model([SAME], [X, _SEQUENCE])
VALID["an optional value for an input"] = lambda: _model(
    [
        helper.make_node("OptionalGetElement", ["q"], ["h"]),
        helper.make_node("Mul", ["h", "x"], ["y"]),
    ],
    [
        X,
        helper.make_value_info(
            "q", helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [4]))
        ),
    ],
)

# ------------------------------------------------------------------------- declared shapes

for _dims in ([0, MOST], [MOST, 0], [0, 2**40], [2**40, 0]):
    REFUSED[f"an initializer of shape {_dims}"] = lambda dims=_dims: _model(
        [
            helper.make_node("ReduceSum", ["w"], ["v"], keepdims=0),
            helper.make_node("Mul", ["x", "v"], ["y"]),
        ],
        [X],
        [helper.make_tensor("w", FLOAT, dims, [])],
    )
    REFUSED[f"an input of shape {_dims}"] = lambda dims=_dims: _model([SAME], [_value("x", *dims)])
for _size in (2**50, MOST):
    REFUSED[f"an input of {_size}"] = lambda size=_size: _model([SAME], [_value("x", size)])
for _size in (2**28, 2**34, 2**37):
    VALID[f"an input of {_size}"] = lambda size=_size: _model([SAME], [_value("x", size)])
    VALID[f"{_size} indices"] = lambda size=_size: _model(
        [helper.make_node("Gather", ["x", "i"], ["y"])], [X, _value("i", size, kind=INT64)]
    )
for _rank in (70, 10**4):
    REFUSED[f"an input of {_rank} axes"] = lambda rank=_rank: _model(
        [SAME], [_value("x", *[1] * rank)]
    )
    REFUSED[f"an input of {_rank} open axes"] = lambda rank=_rank: _model(
        [SAME], [_value("x", *(f"d{axis}" for axis in range(rank)))]
    )
