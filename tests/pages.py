"""Plans to make pages of: one of a few steps, hostile ones, and one of very many steps."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
from conftest import TINY, build, tiny_weights

from gradtool import api, shapes
from gradtool.graph.specs import Spec
from gradtool.planning.plan import Buffer, Plan
from gradtool.planning.schedule import Schedule
from gradtool.program import Program, Step, Value
from gradtool.reports.page_data import Page
from gradtool.reports.plans import Row
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
