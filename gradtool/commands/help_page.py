"""The options of a command in groups, where they are many."""

from __future__ import annotations

from collections.abc import Sequence

import click

MANY = 20  # options that are read as one list

# By title the parameters of commands, in the order of a page, but those of records, whose fields
# name their title.
GROUPS = {
    "Data": "data mapped",
    "Sizes": "batch dims shapes values keep_cache",
    "Loss and gradients": "",
    "What learns": "head",
    "Optimizer": "optimizer",
    "Learning rate": "find_lr",
    "Text": "",
    "Evaluation": "evaluate result",
    "Plan": "policy keep drop checkpoints max_batch frontier points cost memory plan plans "
    "micro_batches explain",
    "Ranks and stages": "ranks stages shard shard_tables staleness sync_batchnorm deterministic "
    "timeout link latency",
    "Device": "threads",
    "What is done": "verify profile explain_kernels",
    "Form of the file": "split params_as_inputs functions barrier portable javascript opset "
    "external_data",
    "Results": "model report output force folder resume export lora_adapter save_grads "
    "save_outputs by top html svg trace form help",
}
PLACES = {name: title for title, names in GROUPS.items() for name in names.split()}


def grouped(shown: Sequence[click.Option]) -> dict[str, list[click.Option]]:
    """The options by the title that they stand under, as a page has them."""
    if len(shown) < MANY:
        return {"Options": list(shown)}
    found: dict[str, list[click.Option]] = {title: [] for title in GROUPS}
    for option in sorted(shown, key=lambda each: _place(each)[1]):
        found[_place(option)[0]].append(option)
    return {title: options for title, options in found.items() if options}


def _place(option: click.Option) -> tuple[str, int]:
    """The title of an option, and its place there: options of records come last but for --help."""
    places = list(PLACES)
    name = option.name or ""
    if title := getattr(option, "group", ""):
        return title, places.index("form")
    place = name if name in PLACES else "help"
    return PLACES[place], places.index(place)
