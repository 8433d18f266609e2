import json
import subprocess
import sys
from importlib import metadata

import numpy as np

from gradtool.exec import available_memory
from gradtool.reports import system


def test_versions_are_those_installed(run):
    outcome = run("doctor", "--format", "json")

    assert outcome.code == 0
    found = {fact["name"]: fact for fact in json.loads(outcome.out)["facts"]}
    assert found["numpy"]["value"] == np.__version__
    assert found["onnx-ir"]["value"] == metadata.version("onnx-ir")
    assert found["memory"]["value"].endswith(" free")
    assert int(found["processors"]["value"]) >= 1


def test_what_is_absent_comes_with_the_way_to_install_it(run, monkeypatch):
    monkeypatch.setattr(system.util, "find_spec", lambda _: None)
    monkeypatch.setattr(system, "ONNXRUNTIMES", ("no-such-package",))

    outcome = run("doctor")

    assert outcome.code == 0
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "onnxruntime absent pip install 'onnxruntime>=1.23'" in lines
    assert any(line.startswith("cupy absent ") and "cupy-cuda1" in line for line in lines)


def test_native_kernels_come_with_their_instructions_or_with_the_reason_why_not(run, monkeypatch):
    from gradtool.native import library

    for value, note in (("x86-64-v3 (AVX2, FMA)", "2 threads"), (None, "built without")):
        monkeypatch.setattr(library, "status", lambda said=(value, note): said)
        outcome = run("doctor", "--format", "json")

        found = {fact["name"]: fact for fact in json.loads(outcome.out)["facts"]}
        assert outcome.code == 0
        assert found["native kernels"]["value"] == value
        assert found["native kernels"]["note"] == note


def test_a_requirement_that_is_missing_is_exit_1(run, monkeypatch):
    monkeypatch.setattr(system, "REQUIRED", ("no-such-package",))

    outcome = run("doctor")

    assert outcome.code == 1
    assert outcome.err == "gradtool: missing: no-such-package; pip install no-such-package\n"


def test_the_driver_decides_the_advice():
    assert "cupy-cuda12x" in system._advice(12080)
    assert "CUDA 12.8" in system._advice(12080)
    assert "cupy-cuda13x" in system._advice(13000)
    assert "no CUDA driver" in system._advice(None)


def test_a_control_group_limits_memory(tmp_path, monkeypatch):
    (tmp_path / "max").write_text("1048576\n")
    (tmp_path / "current").write_text("1000\n")
    monkeypatch.setattr(available_memory, "GROUP_LIMITS", (str(tmp_path / "max"),))
    monkeypatch.setattr(available_memory, "GROUP_USES", (str(tmp_path / "current"),))

    assert available_memory.memory() == (1_047_576, 1_048_576)


def test_it_loads_no_model_library():
    program = "import sys; from gradtool.cli import run; run(['-q', 'doctor']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    loaded = done.stdout.decode().splitlines()[-1].split()
    assert not {"onnx", "onnx_ir", "onnxruntime", "scipy", "sympy"} & set(loaded)
