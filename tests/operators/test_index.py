"""What a lookup imports: the modules that register an operator, by the index of the families."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradtool.graph.registry import Registry
from gradtool.ops import kernels
from gradtool.ops.kernels import Kernel

INDEX = Path(__file__).parents[1] / "index.py"


def printed(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True
    ).stdout


def loaded(lookups: str) -> set[str]:
    """The modules of kernels that lookups import in a fresh interpreter."""
    program = (
        f"import sys\nfrom gradtool.ops import costs, gradients, kernels\n{lookups}\n"
        "print(*(m for m in sys.modules if m.startswith('gradtool.ops.') and '.kernel' in m))"
    )
    return set(printed("-c", program).split()) - {"gradtool.ops.kernels"}


def test_the_index_has_what_the_modules_register():
    import index

    assert printed(str(INDEX), "--print") == index.FILE.read_text("utf-8")


def test_a_lookup_imports_what_registers_the_operator():
    assert loaded("kernels.find('', 'Det', 22)") == {"gradtool.ops.matrix.kernel"}
    assert loaded("kernels.find('', 'Optional', 22)") < loaded("kernels.kernels()")


def test_nothing_is_imported_for_an_operator_that_has_entries_elsewhere_alone():
    assert not loaded("gradients.find('', 'Relu', 22)")


def test_all_is_imported_for_an_operator_that_the_index_lacks():
    everything = loaded("kernels.kernels()")

    assert loaded("kernels.find('com.acme', 'Gate', 1)") == everything


def entry(op: str, module: str) -> Kernel:
    def function(xp):
        return xp

    function.__module__ = module
    return Kernel("", op, 1, function)


@pytest.mark.parametrize("first", ["own", "outer"])
def test_an_entry_from_outside_wins_whichever_was_registered_first(first):
    registry = Registry[Kernel]("kernels", function="function")
    own, outer = entry("Gate", f"{kernels.__package__}.norm.kernel"), entry("Gate", "acme")
    for each in (own, outer) if first == "own" else (outer, own):
        registry.add(each)

    assert registry.find("", "Gate", 20) is outer
