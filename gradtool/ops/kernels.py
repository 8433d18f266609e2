"""Kernels: functions that compute one operator, and their declarations about memory.

A kernel is `function(xp, *inputs, out, work, **attributes)`: the ONNX signature, plus where to
write.  `out` is one array per output of the operator (None where it is not wanted, which may be
any of them and changes no bit of the others), `work` one array per `Spec` that its `work`
declaration returned; one without workspace may leave it out.  It allocates nothing of size itself.

A kernel without an `out` parameter is in the simple style: it returns its result, which is copied
to the planned place.  The copy and the temporaries are declared (`temporaries`) and counted.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Concatenate, TypedDict, TypeVar, Unpack

from gradtool import plugins
from gradtool.graph.declarations import ask
from gradtool.graph.families import full_name, split_name
from gradtool.graph.registry import Registry
from gradtool.graph.specs import Spec
from gradtool.ops.shared.types import Specs

Window = tuple[int, tuple[int, ...]]
Function = Callable[Concatenate[Any, ...], Any]  # the array library comes first
F = TypeVar("F", bound=Function)


@dataclass(frozen=True)
class Kernel:
    """A registered kernel and its declarations, which name what they read (`declarations.ask`).

    `may_inplace` lists inputs whose storage output 0 may take over, if nobody reads them later and
    shape and type agree.  `over` has by output an input that holds an old value, over which this
    output may be written as the next one (None, or too short: there is none).
    `strided` says that any strides of the inputs are fine; otherwise they are contiguous.  `host`
    lists inputs that are wanted as numpy arrays on the host even on a device: sizes, axes, indices
    that decide shapes.
    `view(x, strides, *others, out, **attributes)` returns one `(offset, strides)` in bytes per
    output when all of them are only windows on input 0, which lies with `strides`; None when they
    must be computed.
    `dynamic(xp, *inputs, **attributes)` returns its results: it is called instead where a shape
    depends on data.
    `ahead` says that it may be called on constants before a run: what it takes is bounded by the
    sizes of its inputs, or of outputs whose shapes are inferred.
    `on_device` says that it works by the array library `xp`, that of a device among them; else it
    works on the host, or passes on what it is given.
    """

    domain: str
    op: str
    since: int
    function: Function
    work: Callable[..., Specs] | None = None
    may_inplace: tuple[int, ...] = ()
    over: tuple[int | None, ...] = ()
    strided: bool = False
    host: tuple[int, ...] = ()
    view: Callable[..., Sequence[Window] | None] | None = None
    temporaries: Callable[..., int] | None = None
    dynamic: Function | None = None
    ahead: bool = True
    on_device: bool = True

    @property
    def name(self) -> str:
        """`Op`, or `domain::Op` outside the standard domain."""
        return full_name(self.domain, self.op)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.function).parameters)

    @property
    def allocating(self) -> bool:
        """Whether the function returns its result instead of writing it."""
        return "out" not in self._names

    def buffers(self, out: Sequence[Any], work: Sequence[Any]) -> dict[str, Sequence[Any]]:
        """The keywords of a call that writes into `out`; `work` where the function has it."""
        return {"out": out, "work": work} if "work" in self._names else {"out": out}

    @property
    def chooses(self) -> bool:
        """Whether a call chooses sizes and types of its results."""
        return self.allocating or self.dynamic is not None

    def windows(
        self,
        inputs: Sequence[Any],
        strides: tuple[int, ...],
        out: Specs,
        attributes: Mapping[str, Any],
    ) -> Sequence[Window] | None:
        """Windows of the outputs on input 0, None if they are not views of it."""
        if self.view is None:
            return None
        first, *others = inputs
        found: Sequence[Window] | None = ask(self.view, (first, strides, *others), out, attributes)
        return found

    def workspace(
        self, inputs: Sequence[Any], out: Sequence[Spec | None], attributes: Mapping[str, Any]
    ) -> tuple[Spec, ...]:
        """The arrays that a call needs as `work`.

        `inputs` are specs, or numpy arrays for the `host` inputs that are constant.
        """
        return tuple(ask(self.work, inputs, out, attributes)) if self.work else ()

    def scratch_bytes(
        self, inputs: Sequence[Any], out: Sequence[Spec | None], attributes: Mapping[str, Any]
    ) -> int:
        """Bytes that a call takes outside the planned arena.

        In the simple style these are the results and the temporaries, else the temporaries.
        """
        returned = sum(spec.bytes for spec in out if spec is not None) if self.allocating else 0
        if self.temporaries is not None:
            returned += ask(self.temporaries, inputs, out, attributes)
        return returned


KERNELS = Registry[Kernel]("kernels", "kernel", function="function", group=plugins.KERNELS)


class Declared(TypedDict, total=False):
    """Fields of `Kernel` declared at its registration."""

    work: Callable[..., Specs] | None
    may_inplace: tuple[int, ...]
    over: tuple[int | None, ...]
    strided: bool
    host: tuple[int, ...]
    view: Callable[..., Sequence[Window] | None]
    temporaries: Callable[..., int]
    dynamic: Function
    ahead: bool
    on_device: bool


def kernel(name: str, *, since: int = 1, **declared: Unpack[Declared]) -> Callable[[F], F]:
    """Register the decorated function as the kernel of operator `name` from opset `since` on.

    `function(xp, *inputs, out, work)` writes into the arrays `out`; `xp` is the library of arrays,
    and `work` is left out where there is none.

    Args:
        name: `Op`, or `domain::Op` outside the standard domain.
        since: the first opset version that the kernel is for.
        declared: fields of `gradtool.ops.kernels.Kernel`, as `may_inplace` and `on_device`.

    Example:
        @gt.kernel("com.acme::Twice", may_inplace=(0,))
        def twice(xp, x, *, out):
            xp.add(x, x, out=out[0])
    """

    def register(function: F) -> F:
        KERNELS.add(Kernel(*split_name(name), since, function, **declared))
        return function

    return register


def find(domain: str, op: str, version: int) -> Kernel | None:
    """The kernel of an operator at an opset version, or None. The newest old enough wins."""
    return KERNELS.find(domain, op, version)


def kernels() -> list[Kernel]:
    """Every registered kernel, by name."""
    return KERNELS.entries()
