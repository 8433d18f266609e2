"""What `gradtool` makes of fresh exports: the loss and parameters that it chooses, and 3 steps.

    python benchmarks/export_losses.py [--every N] [--only GLOB]

Models of PyTorch by every exporter (`export_heads.py`) and of scikit-learn (`export_models.py`).
For each, with no flag: the loss is the one that PyTorch is trained by, the values differentiated
by are its parameters, loss and gradients are its own (also in stock onnxruntime), not all of them
zero, and three steps of SGD end where PyTorch's do.  Exits 1 if one does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from export_judge import RATE, STEPS, Arrays, Wrong, check_choice, loaded, require_close, stepped

# -------------------------------------------------------------------------------- PyTorch


def check_head(case: Any) -> None:
    """One model of PyTorch against PyTorch itself."""
    import torch

    import gradtool as gt

    module = case.made()
    torch.manual_seed(1)
    x = torch.randn(3, 4, 6)
    labels = case.labels(module, x)
    model = loaded(case.exported(module, x))
    training = gt.grad(model)
    (name,) = (v.name for v in model.graph.inputs)
    feeds = {name: x.numpy(), "labels": labels.numpy()}
    loss = case.loss(module, x, labels)
    loss.backward()
    found = check_choice(training, case.kind, feeds, loss.item())
    weights = {n: model.graph.initializers[n].const_value.numpy() for n in found}
    named = {n: p.detach().numpy() for n, p in module.named_parameters()}
    pairs = paired(named, weights)
    gradients = {n: p.grad.numpy() for n, p in module.named_parameters()}
    for theirs, (mine, turn) in pairs.items():
        require_close(found[mine], turn(gradients[theirs]), f"the gradient of {theirs}")
    after = stepped(model, feeds)
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        case.loss(module, x, labels).backward()
        optimizer.step()
    moved = {n: p.detach().numpy() for n, p in module.named_parameters()}
    for theirs, (mine, turn) in pairs.items():
        require_close(after[mine], turn(moved[theirs]), f"{theirs} after {STEPS} steps")


def paired(theirs: Arrays, mine: Arrays) -> dict[str, tuple[str, Any]]:
    """For each parameter of PyTorch the initializer that it became, and how it is laid out.

    Raises:
        Wrong: one was left out, or there are others.
    """
    left, pairs = dict(mine), {}
    for name, array in theirs.items():
        for other, weight in left.items():
            turn = next((t for t in turns(weight.shape) if _is(t, array, weight)), None)
            if turn is not None:
                pairs[name] = (other, turn)
                del left[other]
                break
        else:
            raise Wrong(f"parameter {name} is not trained; trained are {', '.join(mine)}")
    if left:
        raise Wrong(f"trained, and no parameters: {', '.join(left)}")
    return pairs


def turns(shape: Any) -> tuple[Any, Any]:
    """The layouts that exporters give to weights."""
    return (lambda a: a.reshape(shape)), (lambda a: a.T.reshape(shape))


def _is(turn: Any, array: Any, weight: Any) -> bool:
    return array.size == weight.size and np.array_equal(turn(array), weight)


def main() -> int:
    """Check all, or every N-th; the last line counts."""
    import export_heads
    import export_models

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="*")
    given = parser.parse_args()
    todo = [(case, check_head) for case in export_heads.cases()]
    todo += [(case, export_models.check_model) for case in export_models.cases()]
    todo = [(c, check) for c, check in todo if fnmatchcase(c.name, given.only)][:: given.every]
    start, wrong = time.perf_counter(), 0
    for case, check in todo:
        try:
            check(case)
        except Exception as error:  # noqa: BLE001 - whatever it is counts, and the next is tried
            wrong += 1
            print(f"{case.name}: {type(error).__name__}: {error}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(todo)} exports, {wrong} wrong, {seconds:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
