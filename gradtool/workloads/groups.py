"""Groups of fused nodes: one step of the planned program, several nodes of the written graph.

A plan decides on groups as wholes.  Its file, and the model that carries it, name nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradtool.errors import UsageError
from gradtool.planning.recompute.mirror import Decision, decide
from gradtool.planning.recompute.policy import Marks, marks
from gradtool.planning.schedule import Schedule
from gradtool.program import Program, Step

if TYPE_CHECKING:
    from gradtool.workloads.workload import Workload

Policy = Callable[[Step], bool]


def labelled(apart: Program, together: Program) -> Program:
    """The program of nodes, `apart`, each with its fusion partners in `together`."""
    group = {name: step.name for step in together.steps if step.nodes for name in step.nodes}
    steps = (replace(step, group=group.get(step.name, "")) for step in apart.steps)
    return replace(apart, steps=tuple(steps), is_grouped=True)


def spread(work: Workload, schedule: Schedule) -> Schedule:
    """A schedule of what is planned as one of nodes: those of a group follow each other."""
    if work.of_nodes is None:
        return schedule
    numbers = {step.name: number for number, step in enumerate(work.apart.steps)}
    pairs = [
        (numbers[name], suffix)
        for step, suffix in zip(schedule.order, schedule.suffixes, strict=True)
        for name in work.program.steps[step].names
    ]
    return Schedule(tuple(number for number, _ in pairs), tuple(suffix for _, suffix in pairs))


def gathered(work: Workload, order: Sequence[str]) -> list[int]:
    """The steps of the plan that names nodes in running order.

    Raises:
        UsageError: a group does not run as one there.
    """
    first = {step.names[0]: number for number, step in enumerate(work.program.steps)}
    of = {name: step for step in work.program.steps for name in step.names}
    found, position = [], 0
    while position < len(order):
        names = of[order[position]].names
        if tuple(order[position : position + len(names)]) != names:
            raise UsageError(
                f"nodes {', '.join(names)} run as one on native kernels, and follow each other in "
                f"a plan: not at {order[position]!r}"
            )
        found.append(first[names[0]])
        position += len(names)
    return found


def decided(
    work: Workload, policy: Policy, keep: Sequence[str] = (), drop: Sequence[str] = ()
) -> Decision:
    """Echo's decision about each node, or about each group of them.

    A group may run twice if each of its nodes may, and is kept if one of them is, by name.

    Raises:
        UsageError: a name in `keep` or `drop` matches nothing.
    """
    named = marks(work.nodes, keep, drop)
    if work.of_nodes is None:
        return decide(work.nodes, policy, named)
    nodes = {step.name: step for step in work.nodes.steps}

    def may(step: Step) -> bool:
        return all(name in named.drop or policy(nodes[name]) for name in step.names)

    joined = _joined(work.nodes, work.program)
    kept = (step.name for step in joined.steps if named.keep.intersection(step.names))
    return decide(joined, may, Marks(frozenset(kept)))


def marked(work: Workload, decision: Decision) -> Mapping[str, bool]:
    """Whether a node is mirrored, by name: what was decided of a group holds for all of its."""
    names = {step.name: step.names for step in work.program.steps}
    return {
        name: is_mirrored
        for step, is_mirrored in decision.marks.items()
        for name in names.get(step, (step,))
    }


def require_written(work: Workload, value: str) -> None:
    """Refuse a value that lies in the middle of a group.

    Raises:
        UsageError: naming the group.
    """
    if work.of_nodes is None or any(v.name == value for v in work.program.values):
        return
    of = {name: step for step in work.program.steps for name in step.names}
    for step in work.apart.steps:
        if any(work.apart.values[v].name == value for v in step.writes):
            raise UsageError(
                f"{value!r} is never written: native kernels compute it within {of[step.name].name}"
            )


def _joined(nodes: Program, together: Program) -> Program:
    """The program of all nodes, views among them, in which the groups of another are steps."""
    inside = {name for step in together.steps for name in step.nodes[:-1]}
    whole = {step.name: step for step in together.steps if step.nodes}
    by_name = {step.name: step for step in nodes.steps}
    steps = []
    for step in nodes.steps:
        if step.name in inside:
            continue
        if step.name in whole:
            members = [by_name[name] for name in whole[step.name].nodes]
            made = {v for member in members for v in member.writes}
            reads = (v for member in members for v in member.reads if v not in made)
            step = replace(  # noqa: PLW2901 - the group in its place
                step, inputs=tuple(dict.fromkeys(reads)), nodes=whole[step.name].nodes,
                recomputable=all(member.recomputable for member in members),
            )  # fmt: skip
        steps.append(step)
    return replace(nodes, steps=tuple(steps))
