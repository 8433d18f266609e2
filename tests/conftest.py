import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import shared
from hypothesis import HealthCheck, settings
from onnx import numpy_helper, parser

from gradtool import cli
from gradtool.native import library
from gradtool.planning.pareto import requirements

SHARE = float(os.environ.get("GRADTOOL_TRIALS", "0.2"))  # 1: `scripts/test --all`, 0.5: .ci/run


if not library.is_available():  # a test that comes to search for a plan is skipped

    def _skipped() -> str:
        pytest.skip(f"no search without the native library: {library.status()[1]}")

    requirements.lacking = _skipped


def trials(count: int) -> int:
    """Examples of a property: a share of those that `scripts/test --all` draws."""
    return max(round(count * SHARE), min(count, 5))


# How long drawing takes says something about the machine, nothing about gradtool.
settings.register_profile(
    "suite",
    max_examples=trials(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

GOLDEN = (5**0.5 - 1) / 2
HEADER = '<ir_version: 10, opset_import: ["" : 20]>'
TINY = """tiny (float[batch, 8] x) => (float loss) {
    h = MatMul (x, w)
    s = Add (h, b)
    e = Exp (s)
    loss = ReduceSum <keepdims = 0> (e)
}"""


@dataclass(frozen=True)
class Outcome:
    """What one command line did: exit code, results, remarks and errors."""

    code: int
    out: str
    err: str


Model = Callable[..., Path]
Command = Callable[..., Outcome]


@pytest.hookimpl(tryfirst=True)  # before cases are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases that `sample` leaves out are exhaustive or slow; `shared` skips where nothing lies."""
    cases: Counter[tuple[Path, str, bool]] = Counter()
    for item in items:
        if (sample := item.get_closest_marker("sample")) is None:
            continue
        every, more = sample.args if len(sample.args) > 1 else (*sample.args, _more(*sample.args))
        is_exhaustive = item.get_closest_marker("exhaustive") is not None
        alike = item.path, item.name.partition("[")[0], is_exhaustive
        for mark in _marks(cases[alike], more if is_exhaustive else every, more):
            item.add_marker(mark)
        cases[alike] += 1
    if shared.is_there():
        return
    skip = pytest.mark.skip(reason=f"needs {shared.SHARED}, which is no part of the repository")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(skip, append=False)  # before the skip of an empty list of files


def build(body: str, header: str = HEADER, **weights: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX text, with initializers."""
    model = parser.parse_model(f"{header} {body}")
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return model


def _is_drawn(number: int, every: float) -> bool:
    """Whether one of so many is this one, in step with no period of theirs."""
    return number * GOLDEN % 1 < 1 / every


def _more(every: float) -> float:
    """So that half of what one in `every` leaves out is exhaustive."""
    return 2 / (1 / every + 1)


def _marks(number: int, every: float, more: float) -> tuple[pytest.MarkDecorator, ...]:
    """None for a case in `every`, exhaustive for one in `more`, slow for the others."""
    if not _is_drawn(number, more):
        return (pytest.mark.slow,)
    return () if _is_drawn(number, every) else (pytest.mark.exhaustive,)


def sampled(values: Iterable[Any], every: int = 5, by: Callable[[Any], Any] = type) -> list[Any]:
    """Parameters of a sweep: of each kind the first, of all one in so many.

    `by` gives the kind of a value, such as the operator of a case.  Half of the rest is exhaustive.
    """
    seen: Counter[Any] = Counter()
    found = []
    for value in values:
        several = value if isinstance(value, tuple) else (value,)
        found.append(pytest.param(*several, marks=_marks(seen[by(value)], every, _more(every))))
        seen[by(value)] += 1
    return found


def swept(count: int, first: int) -> list[Any]:
    """Numbers of drawn cases: the first few, sampled; the others are slow, for who has minutes."""
    more = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(first, count))
    return [*sampled(range(first)), *more]


def tiny_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((8, 4)) / 8).astype(np.float32)
    return {"w": w, "b": np.zeros(4, np.float32)}


@pytest.fixture(autouse=True)
def no_second_opinion(request, monkeypatch) -> None:
    """Commands ask no onnxruntime about what they write, which starts a process each time.

    Tests with the marker `stock` do; so do all that start a process of their own.
    """
    if request.node.get_closest_marker("stock") is None:
        monkeypatch.setattr("gradtool.io.valid.is_installed", lambda: False)


_HOMES = count()


def _at_home(set_variable: Callable[[str, str], None], base: Path) -> Path:
    """Caches and state in a folder of their own, which is made when something is written to it."""
    found = base / "homes" / str(next(_HOMES))
    for kind in ("cache", "state"):
        set_variable(f"XDG_{kind.upper()}_HOME", str(found / kind))
    return found


@pytest.fixture(autouse=True, scope="session")
def nobodys_home(tmp_path_factory) -> Iterator[None]:
    """Nothing here, not what several tests share either, reads or writes what a person has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CI", raising=False)
        _at_home(patch.setenv, tmp_path_factory.getbasetemp())
        yield


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch) -> Path:
    """The folder of this test's user, with `cache` and `state` in it once there is any."""
    return _at_home(monkeypatch.setenv, tmp_path_factory.getbasetemp())


@pytest.fixture(autouse=True)
def no_module_of_another_test(tmp_path_factory) -> Iterator[None]:
    """Modules that a test writes and imports are forgotten: another may call its own the same."""
    known, written = set(sys.modules), str(tmp_path_factory.getbasetemp())
    yield
    for name in sys.modules.keys() - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture
def model(tmp_path) -> Model:
    """Writes a model given as ONNX text (or a message) and returns its path."""

    def write(body: str | onnx.ModelProto, name: str = "model.onnx", **weights) -> Path:
        proto = build(body, **weights) if isinstance(body, str) else body
        path = tmp_path / name
        path.write_bytes(proto.SerializeToString())
        return path

    return write


@pytest.fixture
def tiny_model(model) -> Path:
    """`tiny.onnx`: a matrix product, a bias, `exp`, a sum; a symbolic batch."""
    return model(TINY, "tiny.onnx", **tiny_weights())


@pytest.fixture
def tiny_inputs(tmp_path) -> Path:
    """Inputs of `tiny_model` for a batch of 2."""
    path = tmp_path / "inputs.npz"
    np.savez(path, x=np.ones((2, 8), np.float32))
    return path


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Command:
    """Runs one command line in an empty-handed shell whose folder is `tmp_path`."""
    monkeypatch.chdir(tmp_path)
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def command(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = cli.run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


@pytest.fixture
def shell(tmp_path):
    """Runs `python -m gradtool` in a process of its own; streams are bytes."""

    def command(*arguments: object, stdin: bytes = b"", **environment: str):
        inherited = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "CI", "COLUMNS"}}
        return subprocess.run(
            [sys.executable, "-m", "gradtool", *map(str, arguments)],
            input=stdin,
            env=inherited | environment,
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )

    return command


@pytest.fixture
def instructions(request) -> Iterator[None]:
    """Native kernels are of the instruction set that is the parameter."""
    with library.using(request.param):
        yield
