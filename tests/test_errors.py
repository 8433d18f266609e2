from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from gradtool import errors
from gradtool.errors import GradtoolError, InvalidResult, OverBudget, UnsupportedGradient
from gradtool.ops.driver import Offender, Offenders

MADE = {
    InvalidResult: InvalidResult("the checker", "node n has no input"),
    OverBudget: OverBudget(9, 12, 3, proven=True, order=[0, 1]),
    UnsupportedGradient: UnsupportedGradient(SimpleNamespace(name="n", op_type="Cast"), "no"),
    errors.InvalidResult: errors.InvalidResult("ONNX's checker", "no"),
    Offenders: Offenders([Offender("Cast", 1, "n", "leave it out")]),
}
KINDS = [
    Offenders,
    *(k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, GradtoolError)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_reaches_another_process_as_it_is(kind):
    error = MADE.get(kind) or kind("what, where, what to do")
    found = pickle.loads(pickle.dumps(error))  # noqa: S301

    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
    assert found.exit_code == kind.exit_code
