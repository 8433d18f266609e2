"""A session of one stage: its steps are those of all micro-batches, its results those it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import onnx_ir as ir

from gradtool.exec import feeds
from gradtool.exec.bound_model import Resident
from gradtool.exec.results import Result
from gradtool.exec.state_ready import Settling
from gradtool.operators.kernel_sets import Kernels
from gradtool.ops.ranks.members import in_line, together
from gradtool.passes.cut_stages import part_name
from gradtool.passes.evaluation import evaluation
from gradtool.passes.pipeline_cut import Cut
from gradtool.planning.shared_layout import NO_PARTS, Parts
from gradtool.program.bind_dims import bound
from gradtool.ranks.line import Line
from gradtool.session import Session
from gradtool.session.feeding import Batch
from gradtool.session.options import Ahead
from gradtool.training.graphs import Graphs
from gradtool.training.stages import PipelinePosition, evaluated

Shapes = tuple[tuple[str, tuple[int, ...]], ...]

_MOST_SIZES = 4  # of batches to evaluate, whose stages are kept


class StageSession(Session):
    """The steps of one stage; `whole` has the graphs that were cut."""

    def __init__(
        self,
        graphs: Graphs,
        whole: Graphs,
        cut: Cut,
        place: PipelinePosition,
        kernels: Kernels,
        parts: Parts = NO_PARTS,
        ahead: Ahead | None = None,
    ) -> None:
        super().__init__(
            graphs.model, update=graphs.update, ahead=ahead, parts=parts, kernels=kernels
        )
        self._cut, self._place, self._loss = cut, place, whole.training.loss or ""
        self._original = whole.model
        self._line = Line(place.line)
        self._inference: dict[bool, ir.Model] = {}
        self._stages: dict[tuple[bool, Shapes], Resident] = {}

    def step_parts(self, parts: Sequence[Batch], settling: Settling | None = None) -> list[float]:
        """Take all turns of a step; the losses of its micro-batches where this is the last stage.

        Raises:
            Lost: a stage beside this one does not answer.
        """
        given = {
            part_name(name, number): array
            for number, part in enumerate(parts) for name, array in part.items()
        }  # fmt: skip
        wanted = {v.name for v in self._model.graph.inputs}
        told = _Both(settling, self._line)
        with together(self._place.replicas), in_line(self._line):
            result = self.step(
                {n: a for n, a in given.items() if n in wanted}, copy=False, settling=told
            )
        if not self._place.is_last:
            return []
        return [
            float(result.outputs[part_name(self._loss, number)].item())
            for number in range(len(parts))
        ]

    def update(self, batch: Batch | None = None, *, scale: float = 1.0) -> None:
        """Update what this stage has; a norm is that of all stages."""
        with together(self._place.line):
            super().update(batch, scale=scale)

    def evaluate(self, batch: Batch, *, copy: bool = True) -> Result:
        """Run this stage of the forward model; the last one has the results."""
        self._require_open()
        batch = self._known_ahead(batch)
        resident, loss = self._evaluating(batch)
        wanted = {v.name for v in resident.model.graph.inputs}
        given = {part_name(name, 0): array for name, array in batch.items()}
        binding = resident.feed({n: a for n, a in given.items() if n in wanted})
        with together(self._place.replicas), in_line(self._line):
            seconds = self._run(binding.enter().step)
        result = binding.outlets.take(seconds, copy=copy)
        ends = part_name("", 0)
        found = {n.removesuffix(ends): a for n, a in result.outputs.items() if n.endswith(ends)}
        named = loss and self._loss in found
        return replace(
            result, outputs=MappingProxyType(found),
            loss=float(found[self._loss].item()) if named else None,
        )  # fmt: skip

    def _evaluating(self, batch: Batch) -> tuple[Resident, bool]:
        """The evaluator of a batch of such sizes, planned at its first use; and whether a loss."""
        loss = True
        model = self._inferring(loss=True)
        if any(v.name not in batch for v in feeds.inputs_of(model)):
            loss, model = False, self._inferring(loss=False)
        shapes = tuple((name, tuple(array.shape)) for name, array in batch.items())
        key = loss, shapes
        if key not in self._stages:
            sizes = feeds.sizes(model, batch)
            sized = bound(model, sizes) if sizes else model
            while len(self._stages) >= _MOST_SIZES:
                self._stages.pop(next(iter(self._stages))).clear()
            own = evaluated(self._cut, sized, self._place.stage)
            self._stages[key] = Resident(
                own, self._store, "evaluate", self._kernels, shared=self._shared
            )
        return self._stages[key], loss

    @property
    def _whole(self) -> ir.Model:
        return self._original

    def _inferring(self, *, loss: bool) -> ir.Model:
        if loss not in self._inference:
            self._inference[loss] = evaluation(self._original, loss=loss)
        return self._inference[loss]


class _Both:
    """The listener for final sums, and for tensors handed to other stages."""

    def __init__(self, settling: Settling | None, line: Line) -> None:
        self._settling, self._line = settling, line

    def settled(self, name: str) -> None:
        if self._settling is not None:
            self._settling.settled(name)

    def between(self) -> None:
        if self._settling is not None:
            self._settling.between()
        self._line.bring_forward()
