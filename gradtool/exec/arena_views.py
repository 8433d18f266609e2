"""The arrays of a program's values, laid over an arena when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from gradtool.exec.device import Device
from gradtool.graph.families import split_name
from gradtool.graph.specs import contiguous
from gradtool.native import library
from gradtool.native.call import Block, nowhere
from gradtool.ops import native
from gradtool.planning.plan import Plan
from gradtool.program import Signature, Step


class ArenaViews(Sequence[Any]):
    """Arrays by the numbers of values, and those of workspaces by steps.

    Values `given`, and those `mapped` of files, lie elsewhere.  One of unknown shape has no array,
    unless it is known.
    """

    def __init__(
        self, plan: Plan, device: Device, arena: Any, given: Mapping[int, Any],
        mapped: Mapping[int, Any],
    ) -> None:  # fmt: skip
        self._program, self._device, self._arena = plan.program, device, arena
        self._elsewhere = {**mapped, **given}
        self._offsets = {v: b.offset for b in plan.buffers for v in b.values}
        self._workspaces = {b.first: b.offset for b in plan.buffers if b.region == "workspace"}
        self._arrays: dict[int, Any] = dict(given)

    def __len__(self) -> int:
        return len(self._program.values)

    def __getitem__(self, index: Any) -> Any:
        if index not in self._arrays:
            self._arrays[index] = self._laid(index)
        return self._arrays[index]

    def _laid(self, index: int) -> Any:
        program, device = self._program, self._device
        datum = program.values[index]
        spec = datum.spec
        if spec is None:
            return program.constants.get(index)
        if datum.kind == "host":
            return program.constants[index]
        root, offset = self._root(index)
        base = self._elsewhere.get(root, self._arena)
        if root not in self._elsewhere:
            if root not in self._offsets:
                return device.xp.empty(spec.shape, spec.dtype)
            offset += self._offsets[root]
        if not spec.bytes:
            return device.xp.empty(spec.shape, spec.dtype)
        return device.view(base, offset, spec.shape, spec.dtype, program.strides(index))

    def _root(self, index: int) -> tuple[int, int]:
        """The value whose storage a value lies in, and where there, in bytes."""
        values, offset = self._program.values, 0
        while (view := values[index].view) is not None:
            offset, index = offset + view.offset, view.base
        return index, offset

    def workspace(self, index: int) -> list[Any]:
        """The arrays of the workspace of a step."""
        device, arrays = self._device, []
        specs = self._program.steps[index].workspace
        for spec, offset in zip(specs, self._rooms(index), strict=True):
            arrays.append(
                device.view(self._arena, offset, spec.shape, spec.dtype, contiguous(spec))
                if spec.bytes
                else device.xp.empty(spec.shape, spec.dtype)
            )
        return arrays

    def _rooms(self, index: int) -> Iterator[int]:
        offset = self._workspaces.get(index, 0)
        for spec in self._program.steps[index].workspace:
            yield offset
            offset += self._program.aligned(spec.bytes)

    # -------------------------------------------------------- steps of the library

    def places(self, index: int, base: int) -> list[int] | None:
        """The addresses of a step's inputs, outputs and workspaces, in an arena that is at `base`.

        Numbers on the host and absent operands have none; None if one does not lie in the arena.
        """
        step, places = self._program.steps[index], self._places
        operands = (*step.inputs, *step.outputs)
        found = [0 if v is None else places[v] for v in operands]
        if None in found:
            return None
        rooms = self._rooms(index) if step.workspace else ()
        return [base + place for place in (*found, *rooms)]

    @cached_property
    def _places(self) -> list[int | None]:
        """By value the place in the arena, 0 of one on the host; None of one without."""
        found: list[int | None] = []
        for index, datum in enumerate(self._program.values):
            root, offset = (index, 0) if datum.view is None else self._root(index)
            start = self._offsets.get(root)
            lies = start is not None and datum.spec is not None and 0 not in datum.spec.shape
            lies = lies and root not in self._elsewhere
            if datum.kind == "host":
                found.append(0)
            else:
                found.append(start + offset if lies else None)  # type: ignore[operator]
        return found

    def block(self, step: Step, signature: Signature) -> Block | None:
        """The words of like native steps; None where they call more than the library."""
        used = library.used()
        if signature.bound is None or signature.bound[0] != used:
            kernel = native.find(*split_name(step.op), step.version)
            assert kernel is not None  # noqa: S101 - see `program/native.py`
            count, more = len(step.inputs), len(step.inputs) + len(step.outputs)
            inputs = [self._nowhere(slot, v) for slot, v in enumerate(step.inputs)]
            out = [self._nowhere(count + slot, v) for slot, v in enumerate(step.outputs)]
            work = [
                nowhere(more + i, spec.shape, spec.dtype, contiguous(spec))
                for i, spec in enumerate(step.workspace)
            ]
            call = kernel.bind(*inputs, out=out, work=work, **step.attributes)
            parts = getattr(call, "parts", None)
            signature.bound = used, None if parts is None else Block.of(parts), call
        found: Block | None = signature.bound[1]
        return found

    def _nowhere(self, number: int, value: int | None) -> Any:
        """An operand that lies as a value does; numbers on the host as they are."""
        if value is None:
            return None
        datum = self._program.values[value]
        if datum.kind == "host":
            return self._program.constants[value]
        assert datum.spec is not None  # noqa: S101 - a native step
        return nowhere(number, datum.spec.shape, datum.spec.dtype, datum.strides)
