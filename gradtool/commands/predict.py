"""The command `gradtool predict`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradtool.commands import threads
from gradtool.commands.call import Call, as_command
from gradtool.commands.discovery import Sizes, meant
from gradtool.commands.models import open_model
from gradtool.commands.options import (
    data_option,
    file_flag,
    filled,
    flags,
    format_option,
    map_option,
    model_argument,
    sizes_without_batch,
    switch,
)
from gradtool.training.predict_options import PredictOptions

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter
    from gradtool.training.prediction import Predictor


@as_command("predict")
@model_argument
@data_option("What to predict")
@map_option
@file_flag("-o/--output", "FILE", "Where to write the outputs of all examples: .npz, .csv or "
           ".parquet.")  # fmt: skip
@file_flag("--confusion", "FILE.svg", "Draw the confusion matrix.")
@switch("--force", "Overwrite the files to be written.")
@flags(PredictOptions)
@threads.option
@sizes_without_batch
@format_option
def command(call: Call, /, *, model: str | None, **options: Any) -> None:
    """Compute the outputs of MODEL for all examples of data, in batches.

    Metrics are printed where labels lie in the data.  Files are written whole or not at all.
    """
    from gradtool.errors import UsageError
    from gradtool.io import atomic
    from gradtool.io.sources import require_apart
    from gradtool.reports import predictions
    from gradtool.training.prediction import require_suffix

    chosen = filled(PredictOptions, options)
    output, picture = options["output"], options["confusion"]
    if output is None and not chosen.metric and picture is None:
        raise UsageError("gradtool predict needs -o FILE, --metric NAME or both")
    if output is not None:
        require_suffix(output)
    written = {"-o": output, "--confusion": picture}
    written = {flag: path for flag, path in written.items() if path is not None}
    atomic.require_targets(written, force=options["force"])
    require_apart(written, [options["data"]])
    if picture is not None and not any(predictions.is_table(each) for each in chosen.metric):
        chosen = replace(chosen, metric=(*chosen.metric, predictions.CONFUSION))
    sizes = Sizes.of({**options, "batch": None})
    asked = meant(call, [model], sizes, options, sized=False)
    predictor = _predictor(call.reporter, asked.source, asked.sizes, chosen, options)
    with call.reporter.bar("predicted", total=predictor.data.examples) as shown:
        found = predictor.run(shown.advance)
    files = {}
    if output is not None:
        files[output] = found.save(output, force=options["force"])
    if picture is not None:
        from gradtool.commands.drawing import save

        drawn = predictions.confusion_svg(found.metrics)
        files |= save({picture: drawn}, force=options["force"])
    if options["form"] == "json":
        call.reporter.json(predictions.predict_json(found, files, asked.source))
        return
    for line in predictions.lines(found, files):
        call.reporter.line(line)
    for table in predictions.tables(found.metrics, predictor.data.classes):
        call.reporter.table(table)


def _predictor(
    reporter: Reporter, source: str, sizes: Sizes, chosen: PredictOptions, options: dict[str, Any]
) -> Predictor:
    """The model on its data; what people should know of these is said."""
    from gradtool.errors import UsageError
    from gradtool.exec.device import open_device
    from gradtool.exec.run import kernels_on
    from gradtool.exec.shared_arena import Store
    from gradtool.losses.output_heads import activations
    from gradtool.passes.evaluation import evaluation
    from gradtool.passes.open_batch import is_fixed_at_one, open_batch
    from gradtool.training.metrics import metrics
    from gradtool.training.prediction import Predictor, with_outputs
    from gradtool.training.sources import opened, parse_map
    from gradtool.workloads.names import kernels_of

    model = evaluation(open_model(reporter, source, sizes), loss=False)
    if chosen.batch > 1 and is_fixed_at_one(model):
        try:
            open_batch(model)
        except UsageError as error:
            reporter.say(f"{error}; the examples are computed one after the other")
    wanted = metrics(
        chosen.metric, (), activations=activations(model), refused=("loss",)
    ) if chosen.metric else []  # fmt: skip
    named = [metric.output for metric in wanted if metric.output]
    kept = (*chosen.outputs, *named) if chosen.outputs else ()
    device = open_device(chosen.place)
    said = {**vars(chosen), "exact_conv": False}
    kernels = kernels_on(device.name, kernels_of(said, device.name))
    predictor = Predictor(
        with_outputs(model, kept), opened(options["data"]), parse_map(options["mapped"]),
        chosen.batch, wanted, Store(device), kernels,
    )  # fmt: skip
    for line in predictor.data.said:
        reporter.say(line)
    predictor.data.look_through()
    return predictor
