"""The command `gradtool train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from gradtool.commands import ranks, threads
from gradtool.commands.call import Call, Choice, as_command
from gradtool.commands.decoder_folders import implied
from gradtool.commands.discovery import Meant, Sizes, meant
from gradtool.commands.models import differentiate, open_model
from gradtool.commands.options import (
    data_option,
    file_flag,
    filled,
    flags,
    format_option,
    head_option,
    map_option,
    model_argument,
    sizes_without_batch,
    switch,
)
from gradtool.commands.output import SILENT
from gradtool.training.options import TrainOptions
from gradtool.workloads.grad_options import UNTRAINED, GradOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from gradtool.commands.output import Reporter
    from gradtool.commands.results import Results
    from gradtool.errors import GradtoolError
    from gradtool.ranks.group import Group
    from gradtool.training.graphs import Recipe
    from gradtool.training.history import History
    from gradtool.training.timeline import Span
    from gradtool.training.trainer import Trainer
    from gradtool.workloads.training import TrainingGraph

NOT_HERE = (*UNTRAINED, "optimizer")  # the latter is an option of training


@as_command("train")
@model_argument
@data_option("What to train on")
@file_flag("--eval", "DATA", "What to evaluate on; the best weights are the result then.",
           name="evaluate")  # fmt: skip
@map_option
@file_flag("-o/--output", "FILE", "Where to write the model; default MODEL.trained.onnx.")
@file_flag("--run", "DIR", "Where checkpoints and metrics.jsonl go; default MODEL.train.",
           name="folder")  # fmt: skip
@switch("--lora-adapter", "Write the adapters of --lora for themselves as well: MODEL.lora.onnx "
        "and .onnx_adapter.")  # fmt: skip
@file_flag("--trace", "FILE", "Write a trace for Perfetto of the last steps: what each rank does "
           "when.")  # fmt: skip
@switch("--find-lr", "Try rising learning rates in --steps steps, 100 by default, and say which to "
        "take; nothing is written but --html.")  # fmt: skip
@file_flag("--html", "FILE", "With --find-lr: write a page that shows the loss by learning rate.")
@switch("--resume", "Go on from the newest checkpoint of --run.")
@switch("--export", "With --resume: take no step, and write the weights of a run that was "
        "interrupted.")  # fmt: skip
@click.option("--result", type=Choice(["best", "last"]),
              help="Which weights to write.  [default: best with --eval or --split, else "
                   "last]")  # fmt: skip
@switch("--force", "Overwrite the output; without --resume what --run holds as well.")
@flags(TrainOptions)
@ranks.options
@threads.option
@head_option
@sizes_without_batch
@flags(GradOptions, without=NOT_HERE)
@format_option
def command(call: Call, /, *, model: str | None, **options: Any) -> None:  # fmt: skip
    """Train MODEL on data, and write it with its new weights.

    MODEL is a forward model; loss, backward and updates are built as gradtool grad does. All that
    happens goes to metrics.jsonl, and after a kill --resume ends in the same bits.
    """
    if options["ranks"] is not None:
        from gradtool.training.stages import require_ranks

        require_ranks(
            options["ranks"], options["stages"], options["shard"],
            sync_batchnorm=options["sync_batchnorm"],
        )  # fmt: skip
    if ranks.starts_ranks(options["ranks"]):
        ranks.start(list(call.line), options["ranks"])
        return
    with ranks.joined(options) as group:
        reporter = SILENT if group.rank else call.reporter
        _train(replace(call, reporter=reporter), model, options, group)


def _told(error: Exception, said: str, memory: int | None) -> GradtoolError:
    """The error that ends a command, after one of a training."""
    from gradtool.errors import NoRoom, UsageError

    if not isinstance(error, NoRoom):
        return UsageError(said)
    hint = "; --memory SIZE takes steps in parts and by a plan that fit into less"
    return NoRoom(said + (hint if memory is None else ""))


def _train(call: Call, model: str | None, options: dict[str, Any], group: Group) -> None:
    import gc
    import signal

    from gradtool.commands.following import Follower
    from gradtool.commands.results import Results, beside
    from gradtool.errors import Interrupted, NoRoom, UsageError
    from gradtool.ranks.group import anywhere
    from gradtool.training.sources import parse_map
    from gradtool.training.stopping import listening
    from gradtool.training.timeline import Timeline

    asked = meant(call, [model], _sizes(options), options, sized=False)
    told = implied(call.reporter, asked.source, {**options, **asked.options})
    asked = replace(asked, options={**asked.options, **told})
    if options["find_lr"]:
        from gradtool.commands import rates

        rates.find(call, partial(_trainer, call, asked, options), asked.source, options)
        return
    if asked.source == "-" and group.size > 1:
        raise UsageError("several ranks read the model from a file, not from standard input")
    folder = options["folder"] or beside(asked.source, "train", "", "--run")
    results = Results.of(asked.source, folder, options)
    follower = Follower(call.reporter)
    timeline = None if options["trace"] is None else Timeline(group)
    with _trainer(call, asked, options) as trainer, listening() as heard:
        gc.freeze()  # modules and the graph stay: a full collection walks them for 0.1 s in vain
        try:
            history = trainer.fit(
                options["data"],
                evaluate=options["evaluate"],
                names=parse_map(options["mapped"]),
                run=folder,
                resume=options["resume"],
                export=options["export"],
                fresh=options["force"],
                watcher=follower,
                group=group,
                timeline=timeline,
                rehearse=partial(results.rehearse, say=follower.said),
            )
        except (NoRoom, UsageError, OSError) as error:
            if group.size > 1:
                raise
            raise _told(error, results.kept(trainer, error), options["memory"]) from error
        is_cut = history.ended == "interrupted" and anywhere(group, heard.number is not None)
        spans = None if timeline is None else timeline.gathered(group)
        if group.rank == 0:
            if not is_cut:
                _finish(call, trainer, history, results, asked.source, options)
            _write_trace(spans, asked.source, options)
        if is_cut:
            follower.said(
                f"stopped after step {history.step}, whose checkpoint is in {folder}: go on by the "
                "same command with --resume; --resume --export writes the weights of now"
            )
            raise Interrupted(heard.number or signal.SIGINT, together=True)


def _trainer(call: Call, asked: Meant, options: dict[str, Any]) -> Trainer:
    """The trainer of the model that is meant; what is loaded by now is no garbage."""
    import gc

    from gradtool.commands.kernels import available
    from gradtool.training.graphs import require_forward
    from gradtool.training.sizing import opened_for
    from gradtool.training.trainer import Trainer

    loaded = open_model(call.reporter, asked.source, asked.sizes)
    require_forward(loaded)
    chosen = filled(TrainOptions, options)
    if chosen.kernels == "native" and available(call.reporter, "native") == "numpy":
        chosen = replace(chosen, kernels="numpy")
    wanted = _gradient(asked.options, chosen)
    loaded, said = opened_for(loaded, chosen)
    recipe = replace(recipe_of(call.reporter, loaded, wanted), said=said)
    gc.freeze()
    gc.enable()
    return Trainer.of(recipe, chosen)


def _sizes(options: dict[str, Any]) -> Sizes:
    """How the model is opened: the batch is an option of training."""
    return replace(Sizes.of({**options, "batch": None}), seed=options["seed"])


def _gradient(options: dict[str, Any], chosen: TrainOptions) -> GradOptions:
    """The options of the gradients that a training steps by."""
    given = {name: value for name, value in options.items() if name not in NOT_HERE}
    return filled(GradOptions, given, optimizer=chosen.optimizer, lora_seed=chosen.seed)


def _finish(
    call: Call,
    trainer: Trainer,
    history: History,
    results: Results,
    source: str,
    options: dict[str, Any],
) -> None:
    """Write the trained weights, and tell how training went.

    Raises:
        UsageError: something could not be written, and where its weights are.
    """
    from gradtool.errors import UsageError

    written, failed = results.write(trainer, history, resumed=options["resume"])
    if not written and not failed:
        call.reporter.say(
            f"{results.folder}: is finished, and its results are there: nothing to do"
        )
    _show(call.reporter, history, written, options["form"], source, trainer.classes)
    if failed:
        again = "the same command with --resume writes what is missing, where it can be written"
        raise UsageError("; ".join((*failed, again)))


def _write_trace(
    spans: Sequence[Sequence[Span]] | None, source: str, options: dict[str, Any]
) -> None:
    """Write the trace of all ranks, if it is asked for."""
    from gradtool.commands.drawing import save
    from gradtool.training.timeline import timeline_trace

    if spans is not None:
        save({options["trace"]: timeline_trace(spans, source)}, force=options["force"])


def recipe_of(reporter: Reporter, loaded: ir.Model, options: GradOptions) -> Recipe:
    """Recipe of training graphs of a model, with their options."""
    from gradtool.training.graphs import Recipe

    return Recipe(_Differentiate(reporter, loaded), options)


class _Differentiate:
    """Maker of training graphs of a model; its remarks are said once."""

    def __init__(self, reporter: Reporter, loaded: ir.Model) -> None:
        self._reporter, self._loaded = reporter, loaded

    def __call__(self, options: GradOptions) -> TrainingGraph:
        from gradtool.errors import UsageError
        from gradtool.reports.training import parameters_said

        model = self._loaded.clone()
        model.meta.update(self._loaded.meta)
        made = differentiate(self._reporter, model, options)
        if made.guessed:
            raise UsageError(
                f"no loss found: {made.loss_said} is minimised only where it is asked for: name a "
                "loss with --loss, as mean:OUTPUT"
            )
        self._reporter.say(f"loss: {made.loss_said}   parameters: {parameters_said(made)}")
        self._reporter = SILENT
        return made


def _show(
    reporter: Reporter,
    history: History,
    written: dict[str, tuple[str, int, int]],
    form: str,
    source: str,
    classes: Mapping[str, Sequence[str]],
) -> None:
    from gradtool.reports import predictions
    from gradtool.training import train_log

    if form == "json":
        reporter.json(train_log.history_json(history, written, source))
        return
    for text in train_log.history_lines(history, written):
        reporter.line(text)
    step = written["trained"][2] if "trained" in written else history.step
    reporter.tables(predictions.small_tables(step, history.tables.get(step, {}), classes))
