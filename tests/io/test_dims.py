import pytest

from gradtool import io
from gradtool.errors import UsageError

TWO = (
    "g (float[batch, time] x, float[batch, 4] z, float[past + 1] p) => (y, q) "
    "{ y = Relu (x) q = Exp (z) }"
)


@pytest.fixture
def path(write, text):
    model = text(TWO.replace("past + 1", "past"))
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "past + 1"
    return write(model)


def shapes(model):
    return [str(value.shape) for value in model.graph.inputs]


def test_a_dim_is_a_name_and_a_size():
    assert io.parse_dim("batch=32") == ("batch", 32)
    assert io.parse_dim(" batch = 32 ") == ("batch", 32)
    assert io.parse_dim("past=0") == ("past", 0)


@pytest.mark.parametrize("text", ["batch", "batch=", "=3", "batch=-1", "batch=2.5", "a=x"])
def test_a_dim_of_another_form_is_refused(text):
    with pytest.raises(UsageError, match="write NAME=SIZE with a whole number"):
        io.parse_dim(text)


@pytest.mark.parametrize(
    "text", ["x=32x3x224x224", "x:32,3,224,224", "x:[32,3,224,224]", "x=[32, 3, 224, 224]"]
)
def test_a_shape_has_three_forms(text):
    assert io.parse_shape(text) == ("x", (32, 3, 224, 224))


def test_a_name_may_hold_a_colon_and_a_shape_may_be_empty():
    assert io.parse_shape("serving:0:[2,3]") == ("serving:0", (2, 3))
    assert io.parse_shape("x:[]") == ("x", ())


@pytest.mark.parametrize("text", ["x", "=2x3", "x=2x", "x=2x-3", "x=axb"])
def test_a_shape_of_another_form_is_refused(text):
    with pytest.raises(UsageError, match="write NAME=SIZES"):
        io.parse_shape(text)


def test_the_symbols_come_in_order_of_appearance(path):
    assert io.symbols(io.load(path)) == ["batch", "time", "past"]


def test_a_symbol_is_bound_wherever_it_occurs(path):
    model = io.load(path, dims={"batch": 8, "past": 3})

    assert shapes(model) == ["[8,time]", "[8,4]", "[4]"]
    assert str(model.graph.outputs[1].shape) == "[8,4]"


def test_a_shape_binds_its_symbols_everywhere(path):
    assert shapes(io.load(path, shapes={"x": (8, 5)}))[:2] == ["[8,5]", "[8,4]"]


def test_a_shape_settles_an_expression(path):
    assert shapes(io.load(path, shapes={"p": (7,)}))[2] == "[7]"


def test_the_batch_is_the_leading_symbol_of_the_first_input(path):
    assert shapes(io.load(path, batch=8))[:2] == ["[8,time]", "[8,4]"]


def test_the_batch_is_found_by_name_behind_a_fixed_axis(write):
    model = io.load(write("g (float[50, batch] x) => (y) { y = Relu (x) }"), batch=8)

    assert shapes(model) == ["[50,8]"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"dims": {"bach": 8}},
            "no such symbol; symbols: batch, time, past; did you mean",
        ),
        ({"shapes": {"xx": (8, 5)}}, r"no such input; inputs: x, z, p; did you mean 'x'"),
        ({"shapes": {"z": (8, 5)}}, "--shape z: axis 1 is fixed at 4 in the model, not 5"),
        ({"shapes": {"z": (8,)}}, "1 sizes for an input of 2 axes"),
        ({"shapes": {"x": (8, 5), "z": (9, 4)}}, "batch is given as 8 and as 9"),
        ({"dims": {"batch": 8}, "batch": 9}, "batch is given as 8 and as 9"),
        (
            {"dims": {"past": 2}, "shapes": {"p": (9,)}},
            r"--shape p has size 9 on axis 0, the model takes past \+ 1 = 3 \(past = 2\)",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(path, options, message):
    with pytest.raises(UsageError, match=message):
        io.load(path, **options)


def test_a_fixed_batch_cannot_be_changed(write):
    path = write("g (float[2, 3] x) => (y) { y = Relu (x) }")
    with pytest.raises(UsageError, match="input 'x' is fixed at batch 2"):
        io.load(path, batch=8)
    assert io.load(path, batch=2)


def test_a_model_without_symbols_says_so(write):
    with pytest.raises(UsageError, match="the model has no symbols"):
        io.load(write("g (float[2] x) => (y) { y = Relu (x) }"), dims={"batch": 8})


@pytest.mark.parametrize(
    ("sizes", "symbols", "expected"),
    [
        (["N", "2*N", "floor(N/2 - 3/2) + 1"], ["N"], ["8", "16", "3"]),
        (["2*N", "N*3", "N"], ["N"], ["16", "24", "8"]),
        (["2*N", "3*N + 1", "N + 1"], ["N"], ["16", "25", "9"]),
        (["N + M", "M", "N*M"], ["N", "M"], ["M + 8", "M", "8*M"]),
        (["batch-size", "batch-size", "N"], ["batch_size", "N"], ["batch_size", "batch_size", "8"]),
        (["floor(H/2)", "H + W", "N"], ["floor_H_2_", "H_W", "N"], ["floor_H_2_", "H_W", "8"]),
        (["N**N", "N**2", "N"], ["N_N", "N"], ["N_N", "64", "8"]),
    ],
)
def test_an_expression_counts_where_other_sizes_tell_its_symbols(
    write, text, sizes, symbols, expected
):
    proto = text(
        "g (float[a] x, float[b] y, float[c] z) => (u, v, w) "
        "{ u = Exp (x) v = Exp (y) w = Exp (z) }"
    )
    for value, size in zip(proto.graph.input, sizes, strict=True):
        value.type.tensor_type.shape.dim[0].dim_param = size
    path = write(proto)

    assert sorted(io.symbols(io.load(path))) == sorted(symbols)
    bound = io.load(path, dims={"N": 8})
    assert [str(v.shape)[1:-1] for v in bound.graph.outputs] == expected


def test_a_size_whose_name_is_empty_has_none(write, text):
    proto = text("g (float[3, n] x) => (float[3, n] y) { y = Erf (x) }")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = ""

    assert io.symbols(io.load(write(proto))) == ["x_dim1"]
