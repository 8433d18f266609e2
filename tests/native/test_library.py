import ctypes
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from native_calls import FOUND, needs_library, threads

import gradtool.native
from gradtool.native import call, elementwise, library, sources

STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
KERNEL = re.compile(r"^KERNEL\((\w+)\)\(const struct (\w+) \*", re.MULTILINE)


def layouts():
    """Every struct that the package fills, by its name."""
    found = {}
    for path in Path(gradtool.native.__file__).parent.glob("*.py"):
        module = __import__(f"gradtool.native.{path.stem}", fromlist=["_"])
        for value in vars(module).values():
            if isinstance(value, call.Layout):
                found[value.name] = value
    return found


def signatures():
    """Those of them that are what a kernel takes."""
    return {n: each for n, each in layouts().items() if isinstance(each, call.Signature)}


def fields(body):
    """`(pointers, sizes, numbers)` of a struct in C, in its order."""
    found = ([], [], [])
    for line in filter(None, (part.strip() for part in body.split(";"))):
        kind = 0 if "*" in line else 1 if line.startswith("int64_t") else 2
        assert kind != 2 or line.startswith("double"), line
        found[kind].extend(re.findall(r"(\w+)(?=,|$)", line))
        assert not any(found[kind + 1 :]), "pointers, then sizes, then numbers"
    return tuple(" ".join(names) for names in found)


@pytest.mark.skipif(not sources.TREE.is_dir(), reason="gradtool is installed without its C")
def test_a_struct_in_c_has_the_fields_that_python_writes():
    text = "\n".join(path.read_text() for path in sorted(sources.TREE.glob("kernels/*.[ch]")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    structs = dict(STRUCT.findall(text))
    kernels = dict(KERNEL.findall(text))

    assert kernels.keys() == signatures().keys()
    for name, layout in layouts().items():
        written = (layout.pointers, layout.sizes, layout.numbers)
        assert fields(structs[kernels.get(name, name)]) == written, name


@needs_library
@pytest.mark.skipif(not sources.TREE.is_dir(), reason="gradtool is installed without its C")
def test_every_kernel_is_there_for_every_instruction_set():
    text = "\n".join(path.read_text() for path in sorted(sources.TREE.glob("kernels/*.c")))
    for name, _ in KERNEL.findall(text):
        for instructions in library.load().instructions:
            assert signatures()[name].address(instructions)


@needs_library
def test_one_call_runs_many_bound_steps():
    from gradtool.native import optimizers

    class Step(ctypes.Structure):
        _fields_ = (("kernel", ctypes.c_void_p), ("words", ctypes.c_void_p))

    x, g = np.ones(5, np.float32), np.full(5, 0.25, np.float32)
    address = ctypes.cast(optimizers.SGD.address(), ctypes.c_void_p)
    at = {"x": x.ctypes.data, "g": g.ctypes.data, "new_x": x.ctypes.data}
    words = optimizers.SGD.words(**at, count=5, slots=8, rate=1.0, before=1.0)
    step = Step(address, ctypes.addressof(words))
    library.load().handle.gt_run((Step * 3)(step, step, step), ctypes.c_int64(3))

    assert x.tolist() == [0.25] * 5


@needs_library
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("of", ["joined", "together"])
def test_numbers_below_the_least_normal_one_are_zero_in_the_library_alone(workers, of):
    least = np.finfo(np.float32).smallest_normal
    x = np.full(100_000, least, np.float32)
    half, small = np.full_like(x, 0.5), np.full_like(x, least / 2)
    made, read = np.empty_like(x), np.empty_like(x)
    both = call.Call.joined([
        elementwise.binary("mul", x, half, made), elementwise.binary("add", small, small, read),
    ])  # fmt: skip
    with threads(workers):
        both() if of == "joined" else both.together()

    assert not made.any()
    assert not read.any()
    assert (x * half == small).all()


def test_a_call_with_a_wrong_field_is_refused():
    with pytest.raises(TypeError, match="sgd takes x, g"):
        signatures()["sgd"].bind(x=None)


@needs_library
@pytest.mark.parametrize(
    ("wrong", "why"),
    [(np.zeros((4, 6), np.float32)[:, ::2], "not contiguous"), (np.zeros(4), "float64")],
)
def test_an_array_that_a_kernel_would_misread_is_refused(wrong, why):
    values = dict.fromkeys(["g", "v", "new_x", "new_v"])
    numbers = {"count": 0, "nesterov": 0, "slots": 8, "rate": 0, "momentum": 0, "dampened": 0}
    with pytest.raises(TypeError, match=f"^sgd: x (is )?{why}"):
        signatures()["sgd"].bind(x=wrong, **values, **numbers, l2=0, before=1)


def in_a_fresh_process(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


@needs_library
def test_threads_that_began_before_count_small_numbers_so_too():
    code = """
import ctypes, numpy as np
from gradtool.native import elementwise, library
handle, slots = library.load().handle, np.empty(500, np.int64)
handle.gt_set_threads(3)
for _ in range(500):  # on a busy machine one thread may take all
    handle.gt_probe(ctypes.c_void_p(slots.ctypes.data), *map(ctypes.c_int64, (500, 20000, 8)))
    if slots.max() > 0:
        break
x = np.full(4_000_000, np.finfo(np.float32).smallest_normal)
y = np.empty_like(x)
elementwise.binary("mul", x, np.full_like(x, 0.5), y)()
print(slots.max() > 0, y.any())
"""

    assert in_a_fresh_process(code) == "True False"


def test_importing_gradtool_loads_no_library():
    code = "import sys, gradtool; print('gradtool.native' in sys.modules)"

    assert in_a_fresh_process(code) == "False"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("sources.FOLDER = Path('/nowhere')", "built without native kernels"),
        ("sys.platform = 'plan9'", "no native kernels for plan9"),
    ],
)
def test_a_missing_library_is_a_reason_in_one_line(change, reason):
    code = f"""
import sys
from pathlib import Path
from gradtool.native import library, sources
{change}
print(library.status())"""

    assert in_a_fresh_process(code).startswith(f"(None, '{reason}")


@pytest.mark.skipif(FOUND is None, reason="no library to be older than its sources")
def test_a_library_older_than_its_sources_is_refused(tmp_path):
    (tmp_path / "new.c").write_text("int one;\n")
    code = f"""
from pathlib import Path
from gradtool.native import library, sources
sources.TREE = Path({str(tmp_path)!r})
print(library.status())"""

    assert "native/ has changed" in in_a_fresh_process(code)


@pytest.mark.skipif(FOUND is None, reason="no library beside which to put one")
def test_a_broken_library_is_a_reason_in_one_line(tmp_path):
    name = next(iter(sources.FOLDER.glob("libgradtool*"))).name
    (tmp_path / name).write_bytes(b"no library")
    (tmp_path / sources.DIGEST).write_text(sources.digest(sources.TREE))
    code = f"""
from pathlib import Path
from gradtool.native import library, sources
sources.FOLDER = Path({str(tmp_path)!r})
print(library.status())"""

    assert "does not load" in in_a_fresh_process(code)


@needs_library
def test_a_block_bound_nowhere_runs_on_operands_wherever_they_lie():
    from gradtool.native import optimizers

    def lies(number, array):
        return call.nowhere(number, array.shape, array.dtype, array.strides)

    x, g, rate = np.ones(5, np.float32), np.arange(5, dtype=np.float32), np.float32([0.5])
    made, halves = np.empty_like(x), np.full_like(x, 0.5)
    there = [lies(i, each) for i, each in enumerate((x, g, rate))]
    step = optimizers.momentum(there[0], there[1], None, there[0], None, rate=there[2])
    product = elementwise.run(
        [("mul", 2, 0, 1)], [lies(0, x), halves], [lies(1, made)], np.empty(0, np.float32)
    )
    blocks = [call.Block.of(step.parts), call.Block.of(product.parts)]
    places = [[x.ctypes.data, g.ctypes.data, rate.ctypes.data], [x.ctypes.data, made.ctypes.data]]
    both = call.Call.joined(call.laid(blocks, places))
    both()
    assert x.tolist() == [1, 0.5, 0, -0.5, -1]
    assert made.tolist() == [0.5, 0.25, 0, -0.25, -0.5]
    rate[:] = 1
    both()
    assert x.tolist() == [1, -0.5, -2, -3.5, -5]
