"""Ways to compute a loss in parts, each held against the whole batch."""

from __future__ import annotations

import numpy as np
from forked_ranks import on_ranks
from loss_parts import CASES, EXAMPLES, by_torch, data, held, model

import gradtool as gt
from gradtool.errors import UsageError
from gradtool.ranks.group import ALONE

RATE = 0.125
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
STEP = {"optimizer": "sgd", "lr": RATE, "batch": EXAMPLES, "steps": 1, "shuffle": False}
WAYS = {
    "micro-batches": {"micro_batches": 4},
    "many micro-batches": {"micro_batches": 12},
    "loss scale": {"micro_batches": 2, "loss_scale": 64.0},
    "memory": {"memory": 5200},
    "ranks": {"ranks": 3},
    "ranks and micro-batches": {"ranks": 2, "micro_batches": 3},
    "stages": {"ranks": 2, "stages": 2, "micro_batches": 4},
    "stages of replicas": {"ranks": 4, "stages": 2, "micro_batches": 2},
    "evaluation": {"evaluated": 19, "batch": 8},
    "evaluation on ranks": {"evaluated": 19, "batch": 16, "ranks": 2},
    "evaluation in stages": {"evaluated": 19, "batch": 8, "ranks": 2, "stages": 2,
                             "micro_batches": 2},
    "fixed batch": {"fixed": 4},
    "last batch of a fixed one": {"fixed": 8, "evaluated": 19},
    "stream": {"micro_batches": 3, "stream": True, "evaluated": 19},
}  # fmt: skip


def tried(name, way, seed):
    """`same`, `refused` where that has to be, or what is wrong."""
    import torch

    case, how = CASES[name], WAYS[way]
    given = data(np.random.default_rng(seed))
    deep, fixed = "stages" in how, how.get("fixed")
    rest = {n: v for n, v in how.items() if n not in ("ranks", "evaluated", "fixed", "stream")}
    options = {**STEP, **rest, "loss": list(case.loss)}
    evaluated = how.get("evaluated")
    net = model(case, fixed or "batch", deep=deep)
    names = held(case, given, net)
    aside = None if evaluated is None else held(
        case, data(np.random.default_rng(seed + 100), evaluated), net
    )  # fmt: skip
    start = {
        n: v.const_value.numpy() for n, v in net.graph.initializers.items() if n in ("w0", "w")
    }

    def work(group=ALONE):
        def some(arrays, size):
            return lambda: ({n: a[i : i + size] for n, a in arrays.items()}
                            for i in range(0, len(arrays["x"]), size))  # fmt: skip

        source, watched = names, aside
        if how.get("stream"):
            source, watched = some(names, EXAMPLES), some(aside, 8)
        with gt.Trainer(model(case, fixed or "batch", deep=deep), **options) as trainer:
            history = trainer.fit(source, evaluate=watched, group=group)
            values = trainer._values(best=False)
            chosen = history.fit.chosen.micro_batches if history.fit else None
        found = {n: np.array(values[n]) for n in start if n in values}
        return found, list(history.losses), [e for _, e in history.evaluations], chosen

    try:
        ranks = how.get("ranks", 1)
        weights, losses, evaluations, chosen = on_ranks(ranks, work)[0] if ranks > 1 else work()
    except UsageError as error:
        if case.mixes and ("does not follow" in str(error) or "in 1 micro-batches" in str(error)):
            return "refused"
        return f"{type(error).__name__}: {error}"
    except RuntimeError as error:
        return "refused" if case.mixes and "does not follow" in str(error) else repr(error)
    size = options["batch"]
    used = {n: a[:size] for n, a in given.items()}
    loss, gradients = by_torch(torch, case, used, start)
    after = {n: a - RATE * gradients[n] for n, a in start.items()}
    if case.mixes and (chosen or 2) > 1:
        return "not refused"
    wrong = [] if np.allclose(losses, loss, **CLOSE) else [f"loss {losses} for {loss}"]
    wrong += [f"{n} is off by {abs(weights[n] - after[n]).max():.2g}" for n in weights
              if not np.allclose(weights[n], after[n], **CLOSE)]  # fmt: skip
    if aside is not None:
        there = data(np.random.default_rng(seed + 100), evaluated)
        whole, _ = by_torch(torch, case, there, after)
        whole /= evaluated if name == "sum" else 1
        if not np.isclose(evaluations[-1]["loss"], whole, **CLOSE):
            wrong.append(f"evaluated {evaluations[-1]['loss']} for {whole}")
    return ", ".join(wrong) or "same"
