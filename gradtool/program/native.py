"""A program made for native kernels: their steps, and the layout of images.

Both follow from shapes, types, operators and attributes alone, before anything is planned: so bits
depend on no plan.  An image lies channels last where all that touches it takes that and something
wants it; values that elementwise steps tie together lie alike, and so do a value and its recomputed
instances.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from gradtool.graph.declarations import ask
from gradtool.graph.families import split_name
from gradtool.graph.specs import Spec, is_contiguous
from gradtool.operators import kernel_sets
from gradtool.ops import kernels, native
from gradtool.ops.native import EXACT, Native
from gradtool.ops.shared.image_layouts import Apart, Laid
from gradtool.program import Program, Step, Value
from gradtool.program.declared import operand
from gradtool.program.fusion import Waiting, fused
from gradtool.program.reserve_space import first_instances, keeping

_IMAGE = 4  # axes
_NUMBER = 8  # bytes


def natively(
    program: Program,
    *,
    grouped: bool = True,
    exact: bool = False,
    weighed: list[Waiting] | None = None,
) -> Program:
    """The program with native kernels wherever they fit; elementwise steps fused if `grouped`.

    With `exact`, convolutions are sums of products, none is Winograd's.  Decisions of fusion by
    size are `weighed`.
    """
    found = [_fitting(program, step)[0] for step in program.steps]
    last = _last(program, found)
    values = tuple(
        dataclasses.replace(v, channels_last=True) if i in last else v
        for i, v in enumerate(program.values)
    )
    laid = dataclasses.replace(program, values=values)
    steps = tuple(
        step if kernel is None else dataclasses.replace(
            step, is_native=True, workspace=(), scratch_bytes=0,
            attributes={**step.attributes, EXACT: True} if exact and kernel.exact
            else step.attributes,
        )
        for step, kernel in zip(program.steps, found, strict=True)
    )  # fmt: skip
    chosen = keeping(dataclasses.replace(laid, steps=steps))
    return _with_workspaces(fused(chosen, weighed) if grouped else chosen)


def made_for(
    kernels: kernel_sets.Kernels, program: Program, weighed: list[Waiting] | None = None
) -> Program:
    """The program of numpy's or CuPy's kernels, made for others.

    For those of another runtime no step has a workspace, but for the bodies of control flow.  Where
    the library's kernels run, whatever files have stays there: the library watches over mappings
    (`exec/mapped_files.py`).  Decisions of fusion by size are `weighed`.
    """
    if kernels in kernel_sets.LIBRARY:
        program = natively(program, exact=kernels == "exact", weighed=weighed)
        kernels = kernels if program.is_native else "numpy"
        program = in_place(program) if program.is_native else program
    elif kernels == kernel_sets.NONE:
        program = dataclasses.replace(program, steps=tuple(map(_without_workspace, program.steps)))
    return dataclasses.replace(program, kernels=kernels)


def in_place(program: Program) -> Program:
    """The program that reads weights where they lie in files."""
    values = (dataclasses.replace(v, mapped=True) if v.in_file else v for v in program.values)
    return dataclasses.replace(program, values=tuple(values))


def _without_workspace(step: Step) -> Step:
    if any(isinstance(each, Program) for each in step.attributes.values()):
        return step
    return dataclasses.replace(step, workspace=(), scratch_bytes=0)


def _with_workspaces(program: Program) -> Program:
    """The program with the workspaces of its native steps."""

    def with_its_own(step: Step) -> Step:
        kernel = native.find(*split_name(step.op), step.version) if step.is_native else None
        found = None if kernel is None else workspace(program, step, kernel)
        return dataclasses.replace(step, workspace=found) if found else step

    return dataclasses.replace(program, steps=tuple(map(with_its_own, program.steps)))


def workspace(program: Program, step: Step, kernel: Native) -> tuple[Spec, ...]:
    """The workspace of a native kernel, its `work`."""
    inputs, out = _specs(program, step)
    return tuple(ask(kernel.work, inputs, out, step.attributes))


def needed(program: Program, step: Step, kernel: Native) -> tuple[Spec, ...] | None:
    """The workspace of a native kernel, its `work`; None if it does not fit a step."""
    inputs, out = _specs(program, step)
    if not ask(kernel.fits, inputs, out, step.attributes):
        return None
    return tuple(ask(kernel.work, inputs, out, step.attributes))


def renewed(program: Program, step: Step) -> Step | None:
    """A native step of a program with the workspace for its written outputs.

    None if the library has no kernel for these.
    """
    kernel = native.find(*split_name(step.op), step.version)
    assert kernel is not None  # noqa: S101 - see `natively`
    found = needed(program, step, kernel)
    return None if found is None else dataclasses.replace(step, workspace=found)


Provider = Literal["numpy", "native", "cupy"]


class Choice(NamedTuple):
    """The kernel of a step: numpy, CuPy or native, its method, its image layout, and the reason."""

    step: Step
    provider: Provider
    method: str
    layout: str
    why: str


def choices(program: Program) -> Iterator[Choice]:
    """The kernel of each step of a program, in order."""
    others: Provider = "cupy" if program.kernels == "cupy" else "numpy"
    for step in program.steps:
        method = ""
        if step.is_native:
            kernel = native.find(*split_name(step.op), step.version)
            assert kernel is not None  # noqa: S101 - see `natively`
            inputs, out = _specs(program, step)
            method, why = ask(kernel.method, inputs, out, step.attributes), "it fits"
        else:
            why = _fitting(program, step)[1] or f"it fits, but {others} is asked for"
        touched = [program.values[v] for v in (*step.reads, *step.writes)]
        images = [v for v in touched if _is_image(v)]
        laid = ["channels last"] * any(v.channels_last for v in images)
        laid += ["rows"] * any(not v.channels_last for v in images)
        provider: Provider = "native" if step.is_native else others
        yield Choice(step, provider, method, " and ".join(laid), why)


def _fitting(program: Program, step: Step) -> tuple[Native | None, str]:
    """The native kernel of a step, if there is one, and the reason if there is none."""
    kernel = native.find(*split_name(step.op), step.version)
    if kernel is None:
        return None, "the library has no such kernel"
    if program.is_dynamic(step):
        return None, "its sizes depend on data"
    if not kernel.strided and not lie_in_rows(program, step):
        return None, "it reads a view whose elements lie apart"
    inputs, out = _specs(program, step)
    if not ask(kernel.fits, inputs, out, step.attributes):
        return None, "types, sizes or attributes are not those of the library"
    return kernel, ""


def lie_in_rows(program: Program, step: Step) -> bool:
    """Whether all that a step reads lies in rows without gaps."""
    return all(_lies_in_rows(program, v) for v in step.reads)


def _lies_in_rows(program: Program, value: int) -> bool:
    datum = program.values[value]
    if datum.spec is None:
        return False
    is_plain = datum.view is None and not datum.channels_last and not datum.by_column
    return is_plain or is_contiguous(datum.spec, program.strides(value))


def _specs(program: Program, step: Step) -> tuple[list[object], list[object]]:
    """The operands of declarations: specs, known numbers as arrays, absent ones as None."""
    values, constants = program.values, program.constants
    inputs = [
        None if v is None else operand(values, constants, v, on_host=values[v].kind == "host")
        for v in step.inputs
    ]
    inputs = [
        given if v is None or not isinstance(given, Spec) else _laid(program, v)
        for v, given in zip(step.inputs, inputs, strict=True)
    ]
    return inputs, [None if v is None else _laid(program, v) for v in step.outputs]


def _laid(program: Program, value: int) -> Spec | None:
    """The spec of a value, and how it lies."""
    spec = program.values[value].spec
    if spec is None:
        return None
    if _lies_in_rows(program, value):  # one that has one channel or pixel lies both ways
        return spec
    is_image = program.values[value].channels_last
    return (Laid if is_image else Apart)(spec.shape, spec.dtype)


# --------------------------------------------------------------------------- layouts


def _last(program: Program, kernels: Sequence[Native | None]) -> set[int]:
    """The values in channels-last layout."""
    values, ties = program.values, _Ties(len(program.values))
    first = first_instances(program)
    held = {first.get(v, v) for v in _fixed(program)}
    fixed = frozenset(v for v in range(len(values)) if first.get(v, v) in held)
    barred, wanted = set(fixed), set[int]()
    for step, kernel in zip(program.steps, kernels, strict=True):
        images = [v for v in (*step.reads, *step.writes) if _is_image(values[v])]
        if kernel is None:
            barred.update(_in_numpy(values, step))
        elif kernel.layouts == "rows":
            barred.update(images)
        elif kernel.layouts == "last":
            wanted.update(images)
        elif kernel.layouts == "channels":
            ties.join(images)
        elif kernel.layouts == "alike":
            ties.join(v for v in _of_its_shape(values, step, images) if v not in fixed)
        if kernel is not None:
            barred.update(_in_rows(step, kernel))
    for pair in first.items():
        ties.join(pair)
    lost = {ties.of(v) for v in barred}
    kept = {ties.of(v) for v in wanted} - lost
    return {v for v in range(len(values)) if _is_image(values[v]) and ties.of(v) in kept}


def _of_its_shape(values: Sequence[Value], step: Step, images: Sequence[int]) -> Iterator[int]:
    """The images of the same shape as a step's result."""
    shapes = {spec.shape for v in step.writes if (spec := values[v].spec) is not None}
    for v in images:
        spec = values[v].spec
        if spec is not None and spec.shape in shapes:
            yield v


def _in_numpy(values: Sequence[Value], step: Step) -> Iterator[int]:
    """The images wanted in rows by numpy: its results, and its inputs unless strided."""
    found = kernels.find(*split_name(step.op), step.version)
    is_strided = found is not None and found.strided
    for v in step.writes if is_strided else (*step.reads, *step.writes):
        if _is_image(values[v]):
            yield v


def _in_rows(step: Step, kernel: Native) -> Iterator[int]:
    """The values wanted in rows by a kernel, whatever it does with images."""
    for slots, values in ((kernel.rows_in, step.inputs), (kernel.rows_out, step.outputs)):
        for slot in slots:
            if slot < len(values) and (value := values[slot]) is not None:
                yield value


def _is_image(value: Value) -> bool:
    return value.spec is not None and len(value.spec.shape) == _IMAGE


def _fixed(program: Program) -> Iterator[int]:
    """Values with a fixed layout of rows: inputs, results, views, their bases, weights."""
    yield from program.inputs
    yield from program.outputs
    for v, value in enumerate(program.values):
        if value.view is not None:
            yield from (v, value.view.base)
        if value.alias is not None or value.kind in ("parameter", "state", "constant", "host"):
            yield v


class _Ties:
    """Sets of values of the same layout."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def of(self, value: int) -> int:
        """The representative of a set."""
        while self._above[value] != value:
            self._above[value] = self._above[self._above[value]]
            value = self._above[value]
        return value

    def join(self, values: Iterable[int]) -> None:
        """Put values into one set."""
        tied = sorted({self.of(value) for value in values})
        for value in tied:
            self._above[value] = tied[0]
