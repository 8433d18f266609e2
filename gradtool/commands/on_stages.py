"""`report --ranks --stages`: what the stages of a training take, on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtool.commands.on_ranks import Asked, Show
    from gradtool.commands.output import Reporter


def replicas(ranks: int, options: dict[str, Any]) -> int:
    """How many ranks have the same stage; all have the whole model where there are none.

    Raises:
        UsageError: stages do not divide the ranks, or a file cannot be written.
    """
    from gradtool.io import atomic
    from gradtool.training.stages import require_ranks

    stages = options["stages"] or 1
    require_ranks(
        ranks, stages, options["shard"] or "none", sync_batchnorm=options["sync_batchnorm"]
    )
    if options["html"] is not None:
        atomic.require_targets({"--html": options["html"]}, force=options["force"])
    return ranks // stages


def staged(asked: Asked, options: dict[str, Any]) -> Show:
    """Lay a model out in stages."""
    from gradtool.commands.drawing import save
    from gradtool.reports.pipeline_page import pipeline_page
    from gradtool.reports.stages import stages_json, stages_table
    from gradtool.text.units import format_bytes
    from gradtool.training.stage_layouts import pipeline

    stages, shard = options["stages"], options["shard"] or "none"
    found = pipeline(
        asked.graphs, asked.updates, asked.dims, asked.link, stages=stages,
        replicas=asked.ranks // stages, micro_batches=asked.micro_batches, shard=shard,
        kernels=asked.kernels, seconds=asked.priced.seconds,
    )  # fmt: skip
    title = f"{asked.source} in {stages} stages on {asked.ranks} ranks, {asked.optimizer}"
    title += "" if shard == "none" else " sharded"

    def show(reporter: Reporter, form: str) -> None:
        path = options["html"]
        texts = {} if path is None else {path: pipeline_page(title, found, asked.told)}
        sizes = save(texts, force=options["force"])
        if form == "json":
            document = stages_json(found, asked.source, asked.ranks, asked.dims, asked.how)
            reporter.json({**document, "written": sizes})
            return
        reporter.table(stages_table(found, title, asked.told), form)
        for written, size in sizes.items():
            reporter.remark(f"wrote {written} ({format_bytes(size)})", form)

    return show
