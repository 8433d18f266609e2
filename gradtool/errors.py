"""Every error that gradtool raises on purpose.

    GradtoolError               1   a check, limit or verification failed
    ├── OverBudget              1   no schedule within a budget of memory
    ├── UsageError              2   a flag, a name or a configuration
    │   ├── UserCodeError       2   a function of the user's that raises, or returns nothing usable
    │   └── OpenSizes           2   dynamic dimensions without a value
    ├── ModelError              2   a file that cannot be read, or is not a valid model
    │   ├── ImpossibleShape     2   a value that no array can be (in `shapes.limits`)
    │   └── MissingData         2   weights or inputs that are needed and absent
    ├── NotDifferentiable       3   no gradient exists, or none is registered
    │   ├── UnsupportedGradient 3   one node, seen by a rule
    │   └── Unreachable         3   a value that the loss does not depend on
    ├── DeviceError             4   the device or the native library is missing, or out of memory
    │   └── NoRoom              4   it is out of memory
    ├── Exhausted               4   a step took all that it may (in `kernels.allowance`)
    └── InvalidResult          70   what was made is not a valid model: a bug in gradtool

The number is the exit code. A message is one line: what, where, what to do.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class GradtoolError(Exception):
    """A failure with a one-line message for the user; its class gives the exit code."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """How other processes get it: as it is, whatever its class is made from."""
        return _again, (type(self), self.args, vars(self))


class GradtoolWarning(UserWarning):
    """Warning of a result that is right as far as anybody knows: one line."""


class UsageError(GradtoolError):
    """A flag, a name or a configuration that cannot be used."""

    exit_code = 2


class UserCodeError(UsageError):
    """A function of the user's that raises, takes other arguments or returns another type."""


class OpenSizes(UsageError):
    """Dynamic dimensions that nobody gave a value."""

    def __init__(self, symbols: Sequence[str], decided: Mapping[str, str] | None = None) -> None:
        """`decided` names the origin of sizes without a flag."""
        named = ", ".join(repr(name) for name in symbols)
        flags = " ".join(f"--dim {name}=N" for name in symbols if name not in (decided or ()))
        if len(symbols) == 1:
            batch = "--batch N or " if symbols[0] == "batch" else ""
            super().__init__(f"dynamic dimension {named} has no value; give {batch}{flags}")
        else:
            super().__init__(f"dynamic dimensions {named} have no values; give {flags}")
        if decided:
            told = "; ".join(f"{name!r}: {how}" for name, how in decided.items())
            self.args = (f"sizes without values: {told}{f'; give {flags}' if flags else ''}",)
        self.symbols = tuple(symbols)


class OverBudget(GradtoolError):
    """No schedule within a budget was found, or there is none.

    `reached` is the least peak that is known to be reachable, `least` one below which no schedule
    is; both in bytes.  `order` are the steps that a schedule of the least peak found runs,
    `said` is what to say instead of the numbers.
    """

    def __init__(
        self,
        budget: int,
        reached: int,
        least: int,
        *,
        proven: bool,
        order: Sequence[int] = (),
        said: str = "",
    ) -> None:
        self.budget, self.reached, self.least, self.proven = budget, reached, least, proven
        self.order = tuple(order)
        what = "no schedule fits into" if proven else "no schedule was found within"
        super().__init__(
            said
            or f"{what} {budget} bytes: {reached} are known to suffice, below {least} there is none"
        )


class ModelError(GradtoolError):
    """A model file that cannot be read, or does not hold a valid model."""

    exit_code = 2


class MissingData(ModelError):
    """A tensor value needed now and absent from the files."""


class NotDifferentiable(GradtoolError):
    """A gradient that does not exist or has no rule."""

    exit_code = 3


class UnsupportedGradient(NotDifferentiable):
    """Raised by a rule: this node has no gradient here, and why."""

    def __init__(self, node: object, why: str) -> None:
        name = getattr(node, "name", None) or "(unnamed)"
        super().__init__(f"{getattr(node, 'op_type', '?')} {name!r}: {why}")


class Unreachable(NotDifferentiable):
    """A value was asked for by name, and the loss does not depend on it."""


class DeviceError(GradtoolError):
    """The device or the library that is needed is missing, broken or out of memory."""

    exit_code = 4


class NoRoom(DeviceError):
    """Memory has no room for what is to be allocated."""


class InvalidResult(GradtoolError):
    """A model that was made and must not be written, because it is not valid."""

    exit_code = 70

    def __init__(self, judge: str, reason: str) -> None:
        super().__init__(
            f"a bug in gradtool: {judge} refuses the result, and nothing was written: {reason}; "
            "please report it with the command and the model"
        )


class SystemErrors:
    """A context in which a refusal of the system is one line: `PATH: cannot be read: REASON`."""

    def __init__(
        self, where: object, what: str = "cannot be read", kind: type[GradtoolError] = UsageError
    ) -> None:
        self._where, self._what, self._kind = where, what, kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = error.strerror or error
            raise self._kind(f"{self._where}: {self._what}: {reason}") from error


class Interrupted(KeyboardInterrupt):
    """The end that somebody asked for by a signal; `together` if all ranks come to it alike."""

    def __init__(self, number: int, *, together: bool = False) -> None:
        super().__init__()
        self.exit_code = 128 + number
        self.together = together


def _again(
    kind: type[GradtoolError], args: tuple[object, ...], state: dict[str, object]
) -> GradtoolError:
    """An error with the message and the attributes of another one."""
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error
