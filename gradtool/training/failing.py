"""Why the loss of a batch is no number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradtool.training.checks import has_nan
from gradtool.training.counting import Counter
from gradtool.training.data import Arrays, BoundDataset
from gradtool.training.graphs import Graphs, evaluated_in_parts

NOTHING = "nothing counts in this batch: its labels are ignored, or weigh 0"


def why(
    graphs: Graphs, data: BoundDataset, batch: Arrays, trained: Mapping[str, np.ndarray[Any, Any]]
) -> str | None:
    """The message about a batch whose loss is not finite; empty where nothing is known.

    None where its labels do not count and what is `trained` has no NaN of it: it adds nothing.
    """
    for name, given in batch.items():
        if "float" in given.dtype.name and np.isinf(given).any():
            return f"{data.names[name]!r} has an infinity in this batch"
    if graphs.parts.kind is None:
        graphs = evaluated_in_parts(graphs, data.takes)
    counted = Counter(graphs, data).whole([batch]) if graphs.parts.ahead else None
    if counted is None or not counted.counts_nothing():
        return ""
    broken = any(v.dtype.kind in "fV" and has_nan(v) for v in trained.values())
    return NOTHING if broken else None
