"""Learning rates that losses suggest: `gradtool train --find-lr`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradtool.commands.call import Call
    from gradtool.training.trainer import Trainer

WIDTH = 78  # columns of the picture


def find(
    call: Call, trainer_of: Callable[[], Trainer], source: str, options: Mapping[str, Any]
) -> None:
    """Print the losses of rising rates and what they suggest, and write the page asked for."""
    from pathlib import Path

    from gradtool.commands import drawing
    from gradtool.commands.following import Follower
    from gradtool.text.units import format_bytes
    from gradtool.training import rate_report as rates
    from gradtool.training.sources import parse_map

    page, force = options["html"], options["force"]
    drawing.asked({**dict.fromkeys(drawing.FILES), "html": page, "force": force})
    with trainer_of() as trainer:
        names, watcher = parse_map(options["mapped"]), Follower(call.reporter)
        found = trainer.find_lr(options["data"], names=names, watcher=watcher)
    text = {} if page is None else {page: rates.rates_page(found, Path(source).name)}
    written = drawing.save(text, force=force)
    if options["form"] == "json":
        call.reporter.json(rates.rates_json(found, written, source))
        return
    for line in rates.rates_plot(found, WIDTH, unicode=call.reporter.draws()):
        call.reporter.line(f" {line}".rstrip())
    call.reporter.line("")
    for line in rates.rates_lines(found):
        call.reporter.line(line)
    for path, size in written.items():
        call.reporter.line(f"wrote {path} ({format_bytes(size)})")
