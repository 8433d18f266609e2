"""Plans as files: the names of nodes in running order, and what tells whose they are."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NotRequired, TypedDict

import onnx_ir as ir

from gradtool.errors import UsageError
from gradtool.graph.training_info import TrainingInfo
from gradtool.io.documents import is_text, is_whole, read_document, write_document
from gradtool.operators.kernel_sets import Kernels
from gradtool.planning.schedule import Schedule, instances
from gradtool.planning.search.proof import Proof
from gradtool.shapes.inference import register_shapes
from gradtool.text.json_schema import Count
from gradtool.text.words import suggest
from gradtool.workloads.budgets.prices import FLOPS
from gradtool.workloads.groups import gathered
from gradtool.workloads.loops import formed, taken
from gradtool.workloads.names import FLAGS, KERNELS, current
from gradtool.workloads.planned import Planned
from gradtool.workloads.plans import all_dims, form_of, planned
from gradtool.workloads.proofs import ProofRecord, details, lines, proof_json, proof_of
from gradtool.workloads.recompute import prepared
from gradtool.workloads.records import Dims, PlannedFor
from gradtool.workloads.workload import Workload

SCHEMA_VERSION = 1
SUFFIX = ".json"
_MOST_RUNS = 64  # times that a node may run, on average


class PlanDocument(TypedDict):
    """A plan for one model, at one size."""

    name: str
    model: Annotated[str, "A hash of the nodes of the training graph."]
    dims: Dims
    set: NotRequired[
        Annotated[
            dict[str, Any],
            "Values of inputs that were made constants; null for inputs that went with them.",
        ]
    ]
    kernels: NotRequired[PlannedFor]
    peak_bytes: Count
    load_bytes: Count
    keep_bytes: Annotated[Count, "The peak where everything is kept."]
    proof: ProofRecord | None
    turns: NotRequired[
        Annotated[
            list[tuple[str, int]],
            "Loops whose turns backward takes again: the node of the gradient, and how many turns "
            "at once; in the order in which the graph is rewritten.",
        ]
    ]
    order: Annotated[list[str], "Names of nodes, once for each time they run."]


@dataclass(frozen=True)
class PlanFile:
    """A plan that was written.

    Attributes:
        source: the path of the file.
        name: that of the plan.
        model: the fingerprint of the graph that it was made for.
        dims: the sizes that it was made for, by symbol.
        order: names of nodes, once for each time they run.
        peak: bytes of the arena.
        proof: what the search proved, and whether the clock ended it.
        kernels: those that it was made for: nodes that native ones run as one follow each other.
        turns: those of loops that it takes again, in the order in which the graph is rewritten.
        values: those of inputs that were set, null for inputs that went with them.

    Example:
        training = gt.grad(gt.load("samples/cnn.onnx", dims={"batch": 8}))
        gt.save_plan(gt.mirror(training), "mirror.json")
        gt.load_plan("mirror.json").peak  # bytes
    """

    source: str
    name: str
    model: str
    dims: Mapping[str, int]
    order: tuple[str, ...]
    peak: int
    proof: Proof | None = None
    kernels: Kernels = "numpy"
    turns: tuple[tuple[str, int], ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"PlanFile({self.source!r}, {self.name!r}, peak {self.peak} bytes)"


def save(
    work: Workload,
    found: Planned,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    own: bool = False,
) -> int:
    """Write a plan, through no link if its name is our `own`; returns the bytes of the file.

    Raises:
        UsageError: the file exists without `force`, or cannot be written.
    """
    form = form_of(work, found)
    steps = form.program.steps
    document: PlanDocument = {
        "name": found.name,
        "model": fingerprint(work.model.graph),
        "dims": dict(sorted(all_dims(work).items())),
        "set": dict(TrainingInfo.of(work.model).fixed),
        "kernels": work.kernels,
        "peak_bytes": found.peak,
        "load_bytes": found.plan.peak_live,
        "keep_bytes": work.kept.peak,
        "proof": None if found.proof is None else proof_json(found.proof),
        "turns": list(form.turns.items()),
        "order": [name for number in found.schedule.order for name in steps[number].names],
    }
    numbered = {"schema_version": SCHEMA_VERSION, **document}
    return write_document(numbered, path, force=force, own=own)


def load(path: str | os.PathLike[str]) -> PlanFile:
    """Read a plan without knowing its model.

    Raises:
        UsageError: the file cannot be read or is no plan.
    """
    document = read_document(path, SCHEMA_VERSION)
    name, model, dims, order, peak = (
        document.get(key) for key in ("name", "model", "dims", "order", "peak_bytes")
    )
    values = document.get("set", {})
    if not (is_text(name) and is_text(model) and is_whole(peak) and isinstance(order, list)):
        raise UsageError(f"{path}: is no plan: write one with gradtool recompute -o plan.json")
    if not all(map(is_text, order)):
        raise UsageError(f"{path}: is no plan: its order holds something else than names")
    if not isinstance(dims, dict) or not all(map(is_whole, dims.values())):
        raise UsageError(f"{path}: is no plan: its dims are no sizes by name")
    if not isinstance(values, dict):
        raise UsageError(f"{path}: is no plan: its set is no values by name")
    kernels = document.get("kernels", "numpy")
    if kernels not in KERNELS:
        raise UsageError(f"{path}: is no plan: its kernels are none of {', '.join(KERNELS)}")
    turns = document.get("turns", [])
    if not isinstance(turns, list) or not all(map(_is_loop, turns)):
        raise UsageError(f"{path}: is no plan: its turns are no numbers by name")
    return PlanFile(
        os.fspath(path), current(name), model, dims, tuple(order), peak,
        _proof(path, document.get("proof")), kernels, tuple((name, turns) for name, turns in turns),
        values,
    )  # fmt: skip


def _is_loop(given: object) -> bool:
    """Whether something names a loop and a number of its turns."""
    return isinstance(given, list) and [*map(type, given)] == [str, int]


def _proof(path: str | os.PathLike[str], given: object) -> Proof | None:
    """The proof in a plan; null where nothing was searched for."""
    if given is None:
        return None
    found = proof_of(given) if isinstance(given, dict) else None
    if found is None:
        raise UsageError(f"{path}: is no plan: its proof does not say what recompute writes")
    return found


def planned_by(work: Workload, file: PlanFile) -> Planned:
    """The plan in a file, for the training graph that it was made for.

    Raises:
        UsageError: it is of other sizes or another model, or its order cannot run.
    """
    _same_dims(work, file)
    if file.kernels != work.kernels:
        raise UsageError(
            f"{file.source}: the plan is for {KERNELS[file.kernels]}, here it is for "
            f"{KERNELS[work.kernels]}: say {FLAGS[file.kernels]}"
        )
    if file.model != fingerprint(work.model.graph):
        raise UsageError(f"{file.source}: the plan is of another model: {_difference(work, file)}")
    form = _form(work, file)
    schedule = _schedule(form, file)
    found = planned(form, file.name, schedule)
    if form is not work:
        found = replace(found, form=form)
    if found.peak != file.peak:
        raise UsageError(
            f"{file.source}: the plan says a peak of {file.peak} bytes, here it is "
            f"{found.peak}: it was made for other sizes"
        )
    _same_work(work, form, file, schedule)
    found = replace(found, proof=file.proof)
    return replace(
        found, notes=(f"plan: {file.source}", *lines(found), *taken(found)), details=details(found)
    )


def _form(work: Workload, file: PlanFile) -> Workload:
    """The form of the graph whose loops take turns again as in a plan."""
    try:
        return formed(work, dict(file.turns)) if file.turns else work
    except ValueError as error:
        raise UsageError(f"{file.source}: {error}") from error


def _same_work(work: Workload, form: Workload, file: PlanFile, schedule: Schedule) -> None:
    """Refuse a proof about other work than the plan does; times cannot be told again."""
    if file.proof is None or file.proof.unit != FLOPS.unit:
        return
    costs, total = FLOPS.of(form.program), FLOPS.total(work.program)
    extra = sum(costs[step] or 0 for step in schedule.recomputed)
    extra += max(FLOPS.total(form.program) - total, 0)
    here, told = (extra, total), (file.proof.extra, file.proof.total)
    if here != told:
        raise UsageError(
            f"{file.source}: the plan says {told[0]} FLOPs beyond {told[1]}, here they are "
            f"{here[0]} beyond {here[1]}: its proof is of something else"
        )


def is_of(file: PlanFile, model: ir.Model) -> bool:
    """Whether a plan was made of a training graph."""
    register_shapes()
    return file.model == fingerprint(prepared(model).graph)


def fingerprint(nodes: Iterable[ir.Node]) -> str:
    """A hash of the nodes of a prepared model: their names, operators and values, in order."""
    lines = [
        json.dumps(
            [
                node.name,
                node.domain,
                node.op_type,
                [v.name if v is not None else "" for v in node.inputs],
                [v.name for v in node.outputs],
            ]
        )
        for node in nodes
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _same_dims(work: Workload, file: PlanFile) -> None:
    here = all_dims(work)
    for name in sorted(here.keys() & file.dims.keys()):
        if here[name] != file.dims[name]:
            raise UsageError(
                f"{file.source}: the plan is for {name}={file.dims[name]}, here it is {here[name]}"
            )


def _difference(work: Workload, file: PlanFile) -> str:
    """The first node in one of the two alone, or another difference."""
    here = {step.name: None for step in work.apart.steps}
    there = dict.fromkeys(file.order)
    for names, others, what in ((there, here, "it runs"), (here, there, "it does not run")):
        odd = next((name for name in names if name not in others), None)
        if odd is not None:
            return f"{what} {odd!r}"
    here_set = TrainingInfo.of(work.model).fixed
    for name, value in file.values.items():
        if value is not None and here_set.get(name) != value:
            now = here_set.get(name, "open")
            return f"there {name} is set to {value} (--set), here it is {now}"
    sizes = ", ".join(f"{name}={size}" for name, size in sorted(file.dims.items()))
    given = f" (load it with --dim {sizes}, as when it was planned)" if sizes else ""
    return f"its nodes read or write other values{given}"


def _schedule(work: Workload, file: PlanFile) -> Schedule:
    """The schedule of an order of names, if it can run."""
    steps = work.apart.steps
    numbers = {step.name: number for number, step in enumerate(steps)}
    if len(file.order) > _MOST_RUNS * max(len(steps), 1):
        raise UsageError(f"{file.source}: its order has {len(file.order)} nodes: too many")
    problem = next(_problems(work, file, numbers), None)
    if problem is not None:
        raise UsageError(f"{file.source}: {problem}")
    try:
        order = gathered(work, file.order)
        instances(work.program, order)
    except (ValueError, UsageError) as error:
        raise UsageError(f"{file.source}: {error}") from error
    return Schedule.of(order)


def _problems(work: Workload, file: PlanFile, numbers: Mapping[str, int]) -> Iterator[str]:
    """Faults of an order of names, one after the other."""
    seen: set[str] = set()
    for name in file.order:
        if name not in numbers:
            yield f"the model has no node {name!r}{suggest(name, numbers)}"
        elif name in seen and not work.apart.steps[numbers[name]].recomputable:
            yield f"node {name!r} runs twice, and would give something else then"
        seen.add(name)
    for name in numbers:
        if name not in seen:
            yield f"node {name!r} never runs"
