"""A training graph bound once and stepped many times.

    with gt.Session(training) as session:
        for batch in batches:
            result = session.step(batch | {"lr": 3e-4})
        session.evaluate(batch)
        session.save("model.trained.onnx")

Its parameters and the state of its optimizer lie in one arena, where each step leaves them for the
next.  Sizes that were not fed before are planned once; the latest few plans are kept, and all of
them work on the same parameters.
"""

from __future__ import annotations

from gradtool.session.feeding import matching
from gradtool.session.session import Session

__all__ = ["Session", "matching"]
