"""The step that trains the decoder of a folder of onnxruntime-genai, where nobody says another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradtool.commands.discovery import LOSS
from gradtool.workloads.grad_options import GradOptions
from gradtool.workloads.options import options_of

if TYPE_CHECKING:
    from gradtool.commands.output import Reporter

OF_LOSS = frozenset({"loss", "perplexity"})  # metrics that read no scores


def implied(
    reporter: Reporter, source: str, options: Mapping[str, Any], *, optimizer: str | None = None
) -> dict[str, Any]:
    """Options beside those that are set: the loss of the next token, and no scores for anybody.

    Nothing is implied for another model than a folder.  An evaluation by a metric of scores needs
    them.  An `optimizer` is that of a command whose own default is none.

    Raises:
        ModelError: the configuration of the folder is none, or has parts beside the decoder.
    """
    from gradtool.io import genai

    if source == "-" or not genai.is_folder(Path(source)):
        return {}
    known, found = options_of(GradOptions), dict[str, Any]()
    scores = genai.scores(Path(source))
    if not any(known[name].is_set(options) for name in LOSS):
        found["loss"] = [f"causal:{scores}"]
    shown = {*options.get("metric", ())} - OF_LOSS
    if not known["only_loss"].is_set(options) and not shown and not options.get("head_grads"):
        found["only_loss"] = True
    if optimizer is not None and not known["optimizer"].is_set(options):
        found["optimizer"] = optimizer
    if found:
        flags = [known[n].flag + ("" if v is True else f" {v if isinstance(v, str) else v[0]}")
                 for n, v in found.items()]  # fmt: skip
        reporter.say(f"{source}: as if {' '.join(flags)} were given: it is a decoder")
    return found
