"""Arena sizes of schedules, without building their programs and plans.

They are those of `no_recompute` of the replayed program: the same buffers, packed in the same
order.  Searches ask of hundreds of schedules how large they are, and for the plan of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from gradtool.planning.liveness import workspace_bytes
from gradtool.planning.packing import pack
from gradtool.planning.schedule import alive
from gradtool.planning.simulate import Simulator
from gradtool.program import Step
from gradtool.program.declared import redeclared
from gradtool.program.donation import Replacement, replacements, write_after_read
from gradtool.program.native import renewed


class Instances(NamedTuple):
    """The first and last step of each instance of a storage, -1 if there is none; its storage.

    `touched` are by position the instances that a step reads, by storage.
    """

    born: list[int]
    dies: list[int]
    roots: list[int]
    touched: list[dict[int, int]]


class Arenas:
    """A program ready to be asked how large the arenas of its schedules are."""

    def __init__(self, simulator: Simulator) -> None:
        self.program = simulator.program
        self._simulator = simulator
        self._narrow: dict[tuple[int, tuple[int, ...]], Step | None] = {}

    @cached_property
    def _is_plain(self) -> bool:
        """Whether buffers follow from positions alone.

        They do not where a value that is no result is no activation, as later instances of it are,
        nor where an update, or the first output of a step, has no place over its predecessor.
        """
        program, live_out = self.program, self._simulator.live_out
        values, news = program.values, set(program.state.values())
        made = (values[r] for r in self._simulator.bytes if r not in live_out)
        apart = {new for new in news if values[new].alias is None}
        updated = {v for s in program.steps if s.stage == "update" for v in s.writes}
        first = {step.outputs[0] for step in program.steps if step.outputs}
        return (
            all(v.kind in ("activation", "host") for v in made if v.alias is None)
            and len(news) == len(program.state)
            and apart <= live_out - first - updated
        )

    def size(self, order: Sequence[int]) -> int | None:
        """The bytes of the arena of an order of steps; None if only its plan can tell."""
        found = self.buffers(order) if self._is_plain else None
        return None if found is None else self._simulator.fixed + pack(*found).size

    @cached_property
    def whole(self) -> int | None:
        """The bytes of the arena of the program as it is; None if only its plan can tell.

        A step that runs for nobody has its place there.
        """
        order = range(len(self.program.steps))
        return self.size(order) if self._instances(order) else None

    def buffers(self, order: Sequence[int]) -> tuple[list[int], list[int], list[int]] | None:
        """Bytes, first and last step of each buffer that moves, in order of first use.

        Workspaces come before the writes of their step; dead steps are left out.  None if a value
        is read after it is overwritten, or if no native kernel writes as few outputs as are read of
        its step.
        """
        order, instances = self._ran(order)
        state = self._state(order)
        if instances is None or state is None:
            return None
        born, dies, roots, _ = instances
        owner = self._owners(order, instances)
        last = list(dies)
        for each in range(len(born)):
            last[owner[each]] = max(last[owner[each]], dies[each])
        sizes, first, until = list[int](), list[int](), list[int]()
        for position, written in enumerate(self._written(order, instances)):
            step = self._narrowed(order[position], tuple(roots[each] for each in written))
            if step is None:
                return None
            if workspace := self._workspace(order[position], step):
                sizes.append(workspace)
                first.append(position)
                until.append(position)
            for each in written:
                size = state.get(roots[each], self._sizes[roots[each]])
                if owner[each] == each and size:
                    sizes.append(size)
                    first.append(position)
                    until.append(last[each])
        return sizes, first, until

    def ran(self, order: Sequence[int]) -> list[Step] | None:
        """The live steps of an order, with the FLOPs of the outputs read of each.

        None if only the plan can tell.
        """
        order, instances = self._ran(order)
        if instances is None:
            return None
        roots, found = instances.roots, list[Step]()
        for number, written in zip(order, self._written(order, instances), strict=True):
            step = self._narrowed(number, tuple(roots[each] for each in written))
            if step is None:
                return None
            found.append(step)
        return found

    def _ran(self, order: Sequence[int]) -> tuple[Sequence[int], Instances | None]:
        """The steps of an order without dead ones, and their instances."""
        instances = self._instances(order)
        if instances is None:
            keep = alive(self.program, order)
            order = [step for step, stays in zip(order, keep, strict=True) if stays]
            instances = self._instances(order)
        return order, instances

    def _written(self, order: Sequence[int], instances: Instances) -> Iterator[list[int]]:
        """By position, the instances written by a step and read later."""
        born, dies, made, count = instances.born, instances.dies, 0, len(instances.born)
        for position in range(len(order)):
            begin = made
            while made < count and born[made] == position:
                made += 1
            yield [each for each in range(begin, made) if dies[each] >= 0]

    def _instances(self, order: Sequence[int]) -> Instances | None:
        """The instances of an order; None if a step runs whose results nobody reads."""
        simulator = self._simulator
        live_out, read, reads, writes = (
            simulator.live_out, simulator.read, simulator.reads, simulator.writes,
        )  # fmt: skip
        latest: dict[int, int] = {}
        born, dies, roots = list[int](), list[int](), list[int]()
        touched: list[dict[int, int]] = []
        ran: set[int] = set()
        for position, step in enumerate(order):
            here = {root: latest[root] for root in reads[step]}
            for instance in here.values():
                dies[instance] = position
            touched.append(here)
            for root in writes[step]:
                if root in live_out and root in latest:
                    continue
                latest[root] = len(born)
                born.append(position)
                roots.append(root)
                is_needed = root in live_out or (root not in read and step not in ran)
                dies.append(position if is_needed else -1)
            ran.add(step)
        end = max(len(order) - 1, 0)
        for root in live_out & latest.keys():
            dies[latest[root]] = end
        needed = {at for at, until in zip(born, dies, strict=True) if until >= 0}
        return Instances(born, dies, roots, touched) if len(needed) == len(order) else None

    def _owners(self, order: Sequence[int], instances: Instances) -> list[int]:
        """The instance in whose buffer each lies: another one that ends where it is written."""
        born, dies, roots, touched = instances
        simulator = self._simulator
        owner = list(range(len(born)))
        for instance, position in enumerate(born):
            step = order[position]
            if dies[instance] < 0 or roots[instance] != simulator.targets[step]:
                continue
            here = touched[position]
            donor = next(
                (here[r] for r in simulator.donates[step] if dies[here[r]] == position), None
            )
            if donor is not None:
                owner[instance] = owner[donor]
        return owner

    def _state(self, order: Sequence[int]) -> dict[int, int] | None:
        """Bytes of each next value of state, 0 where an order donates it the old one's storage.

        None if a next value would overwrite an old one before its last read.
        """
        if not self._over and not self._replacements:
            return {}
        last = {step: position for position, step in enumerate(order)}
        first = {step: position for position, step in reversed(list(enumerate(order)))}
        if any(last[reader] > first[write] for reader, write in self._over):
            return None
        return {
            each.new: 0 if each.lies_over(first, last) else each.bytes
            for each in self._replacements
        }

    @cached_property
    def _over(self) -> list[tuple[int, int]]:
        return list(write_after_read(self.program))

    @cached_property
    def _replacements(self) -> list[Replacement]:
        values = self.program.values
        return [each for each in replacements(self.program) if values[each.new].alias is None]

    @cached_property
    def _sizes(self) -> dict[int, int]:
        """Bytes of each storage in the arena."""
        values, sizes = self.program.values, self._simulator.bytes
        return {r: 0 if values[r].kind == "host" else size for r, size in sizes.items()}

    def _workspace(self, number: int, step: Step) -> int:
        """Bytes of the workspace of a step, perhaps a narrowed one."""
        is_whole = step is self.program.steps[number]
        return self._simulator.work[number] if is_whole else workspace_bytes(self.program, step)

    def _narrowed(self, number: int, written: tuple[int, ...]) -> Step | None:
        """A step that writes only some of its outputs; None if no native kernel does."""
        step = self.program.steps[number]
        if len(written) == len(self._simulator.writes[number]):
            return step
        if (number, written) not in self._narrow:
            outputs = tuple(v if v in written else None for v in step.outputs)
            declared = redeclared(self.program, replace(step, outputs=outputs))
            narrow = renewed(self.program, declared) if step.is_native else declared
            self._narrow[number, written] = narrow
        return self._narrow[number, written]
