"""Plans to make pages of: one of a few steps, hostile ones, and one of very many steps."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
from conftest import TINY, build, tiny_weights

from gradtool import api, shapes
from gradtool.graph.specs import Spec
from gradtool.planning.pipeline import Pace, timeline
from gradtool.planning.plan import Buffer, Plan
from gradtool.planning.schedule import Schedule
from gradtool.planning.search.proof import Proof
from gradtool.program import Program, Step, Value
from gradtool.program.roofline import Reach
from gradtool.reports.html import html_page
from gradtool.reports.learning import Run
from gradtool.reports.learning_page import learning_page
from gradtool.reports.page_data import Page
from gradtool.reports.pipeline_page import pipeline_page
from gradtool.reports.plans import Row
from gradtool.reports.roofline_page import roofline_page
from gradtool.reports.stages import Interval, Pipeline, StageLayout
from gradtool.training.rate_report import rates_page
from gradtool.training.rate_sweep import Sweeping, rate_of
from gradtool.workloads import plans, strategies
from gradtool.workloads.planned import Arena, Planned

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\x1b[31mred\x1b[0m",
    "[bold]markup[/bold]",
    "a\u202eb\u2066c\u200fd",
    "{{script}}{{data}}",
    "line\nbreak | pipe & <!-- comment",
    "' onmouseover='alert(3)",
    "n" * 10_000,
    "😀😀中/a",
    "😀😀中/b",
)


def page_of(
    proto: onnx.ModelProto, dims: dict[str, int], names: Sequence[str] = ("mirror", "sqrt")
) -> Page:
    """The page of a model and of some plans of it."""
    model = ir.from_proto(proto)
    shapes.infer(model)
    training = api.grad(model).model
    work = plans.workload(training, dims)
    found = [strategies.STRATEGIES[name](work) for name in ("keep", *names)]
    flops = plans.total_flops(work.program)
    rows = [
        Row("tiny.onnx", each, flops, plans.extra_flops(each.plan, work.kept)) for each in found
    ]
    return Page("tiny.onnx", rows, dims, {})


def tiny_page() -> Page:
    """The page of a product, a bias, `exp` and a sum."""
    return page_of(build(TINY, **tiny_weights()), {"batch": 4})


def chain(steps: int, name=lambda number: f"layer/{number}/block/Relu") -> Plan:
    """A plan whose steps each write 4 KiB that the next one reads; weights of 64 KiB beside it."""
    end, spec = steps - 1, Spec((1024,), np.dtype("float32"))
    values = [Value("weights", Spec((16384,), np.dtype("float32")), "parameter")]
    values += [Value(f"{name(n)}_output_0", spec, "activation") for n in range(steps)]
    halves = ["forward" if n < steps // 2 else "backward" for n in range(steps)]
    nodes = [Step(name(n), "Relu", (n,), (n + 1,), {}, halves[n], name(n)) for n in range(steps)]
    buffers = [Buffer("weights", "parameters", 65536, 0, 0, end, (0,))]
    buffers += [
        Buffer(values[n + 1].name, "activations", 4096, 65536 + 4096 * (n % 3), n,
               min(n + 1 + n % 7, end), (n + 1,))
        for n in range(steps)
    ]  # fmt: skip
    program = Program(tuple(values), tuple(nodes), (), (), {})
    return Plan("keep", program, tuple(buffers), 65536 + 5 * 4096, 65536 + 5 * 4096, 0, end)


def whole(plan: Plan) -> Planned:
    """A plan as what was chosen."""
    schedule = Schedule.of(range(len(plan.program.steps)))
    return Planned(plan.name, Arena.of(plan), schedule)


def chain_page(steps: int) -> Page:
    """The page of three plans of very many steps."""
    plan = chain(steps)
    return Page("chain.onnx", [Row("chain.onnx", whole(plan), 1, 0)] * 3, {}, {})


def hostile_page() -> Page:
    """A page on which every name, also the model's own, is an attack."""
    plan = chain(len(HOSTILE), HOSTILE.__getitem__)
    row = Row(HOSTILE[0], whole(plan), 1, 0)
    return Page(HOSTILE[0], [row, row], {HOSTILE[1]: 4, HOSTILE[4]: 2}, {HOSTILE[4]: 2})


REACH = Reach(1e11, 1e10)


def run_page(seconds: float = 1e-5) -> str:
    """The kernels of a step whose n-th node takes n times so many seconds."""
    steps = tiny_page().rows[0].plan.program.steps
    return roofline_page(
        "tiny.onnx", "drawn", steps, [n * seconds for n in range(len(steps))], REACH
    )


def curves_page(count: int = 500) -> str:
    """Two trainings whose losses fall, and which confuse some of twelve classes."""
    entries = [{"step": n, "loss": 100 / n, "lr": 1 / n} for n in range(1, count + 1)]
    runs = [Run.of(name, entries[::gap]) for name, gap in (("all", 1), ("few", 50))]
    for each in runs:
        each.at, each.tables = 100, {"confusion": 90 * np.eye(12, dtype=int) + 7}
    return learning_page(runs)


def sweep_page() -> str:
    """A sweep of learning rates whose loss falls, then diverges."""
    losses = [2.0] * 50 + [2.0 - 0.15 * n for n in range(13)] + [0.2 + n for n in range(30)]
    told = Sweeping()
    for step, loss in enumerate(losses, 1):
        told.stepped(step, 0, loss, rate_of(step - 1, 100), 0)
    return rates_page(told.found(diverged=True), "tiny.onnx")


def stages_page(micro_batches: int = 4) -> str:
    """Three stages of two replicas each."""
    pace = Pace([1e-3] * 3, [2e-3] * 3, [1e-4] * 2, [1e-4] * 2, [0, 0, 1e-3])
    turns = timeline(pace, micro_batches)
    end = max(turn.end_seconds for turn in turns)
    stages = tuple(
        StageLayout(n, "first", "last", 3 - n, 1000, 1000, 2000, 9000, 13000, 10, 1e-3, 2e-3, 3e-3)
        for n in range(3)
    )
    beside = [Interval(2, "given", 0, 1e-3)]
    for n in range(3):
        own = max(turn.end_seconds for turn in turns if turn.stage == n)
        beside += [Interval(n, "sums", own, end), Interval(n, "update", end, end + 1e-3),
                   Interval(n, "parts", end + 1e-3, end + 2e-3)]  # fmt: skip
    found = Pipeline(stages, 2, micro_batches, "optimizer", tuple(turns), tuple(beside), 0.3,
                     end + 2e-3)  # fmt: skip
    return pipeline_page("tiny.onnx in 3 stages", found, "a link")


def frontier_page() -> Page:
    """A page with what budgets cost."""
    plan = tiny_page().rows[0].plan
    found = [
        Planned("keep", Arena.of(plan), Schedule.of(()),
                proof=Proof(n << 20, 0, 40 // n, 20 // n, 40, "cut", "a search"))
        for n in (1, 2, 4)
    ]  # fmt: skip
    return replace(tiny_page(), frontier=found)


PAGES = {
    "report": lambda: html_page(frontier_page()), "run": run_page, "curves": curves_page,
    "stages": stages_page, "rates": sweep_page,
}  # fmt: skip
