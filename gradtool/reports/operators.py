"""Operators with a gradient rule and a kernel: all of them, or those of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from gradtool.graph import composites, walk
from gradtool.graph.families import full_name, split_name
from gradtool.graph.predicates import may_be_float
from gradtool.ops import conventions, gradients, kernels, traits
from gradtool.ops.traits import Runs
from gradtool.reports import facts
from gradtool.text.json_schema import Count
from gradtool.text.layout import Column
from gradtool.text.table import Table

if TYPE_CHECKING:
    import onnx_ir as ir

Has = Literal["yes", "zero", "body", "no", "-"]

LEGEND = "zero: the derivative is zero by definition.  body: by its body of standard operators"
KERNEL_LEGEND = "arena: writes in the planned arena.  simple: returns its result, which is copied"
PROVIDER_LEGEND = (
    f"ort: stock onnxruntime {facts.ONNXRUNTIME} on the CPU\n"
    "cuda: cupy, the numpy kernel on CuPy arrays; host, copied to the host and back"
)
USE_LEGEND = "-: not needed here"


@dataclass(frozen=True)
class Entry:
    """A registered operator; versions are opsets."""

    operator: str
    gradient: Literal["yes", "zero", "body", "no"]
    gradient_since: tuple[Count, ...]
    kernel: Literal["arena", "simple", "body", "no"]
    kernel_since: tuple[Count, ...]
    in_place_inputs: tuple[Count, ...]
    opsets: Annotated[tuple[Count, ...], "Versions of the standard that define it anew."]
    onnxruntime: Annotated[Runs, "Whether the stock one runs it on the CPU."]
    cuda: Literal["cupy", "host", "no"]
    types: str
    kept: Annotated[tuple[str, ...] | None, "The residuals of the gradient; null if unknown."]
    conventions: Annotated[tuple[str, ...], "The convention where mathematics leaves a choice."]


class RegisteredDocument(TypedDict):
    """All operators."""

    operators: Sequence[Entry]


@dataclass(frozen=True)
class Use:
    """An operator of a model, and whether it can be differentiated and run."""

    operator: str
    nodes: Count
    first_node: str
    gradient: Has
    kernel: Has

    @property
    def lacks(self) -> bool:
        """Whether something is missing."""
        return "no" in (self.gradient, self.kernel)


class UsesDocument(TypedDict):
    """The operators of a model."""

    model: Annotated[str, "The model whose operators these are; absent where all are listed."]
    operators: Sequence[Use]


def registered() -> list[Entry]:
    """Every operator with a rule, a kernel or a body, by name."""
    own = {f"{composites.DOMAIN}::{name}" for name in composites.composites()}
    names = {r.name for r in gradients.rules()} | {k.name for k in kernels.kernels()} | own
    return [_entry(name, composite=name in own) for name in sorted(names, key=_order)]


def unregistered() -> list[Entry]:
    """The operators of the newest standard opset without a rule or a kernel."""
    import onnx

    names = {s.name for s in onnx.defs.get_all_schemas() if not s.domain and not s.deprecated}
    entries = (_entry(name, composite=False) for name in sorted(names))
    return [entry for entry in entries if "no" in (entry.gradient, entry.kernel)]


def uses(model: ir.Model) -> list[Use]:
    """The operators of a model, the most frequent first."""
    needing = _needing_rules(model)
    groups: dict[str, list[ir.Node]] = {}
    for node in walk.nodes(model.graph):
        groups.setdefault(full_name(node.domain, node.op_type), []).append(node)
    rows = [_use(model, op, nodes, needing) for op, nodes in groups.items()]
    return sorted(rows, key=lambda row: (-row.nodes, row.operator))


def registered_table(entries: Sequence[Entry], *, full: bool = False) -> Table:
    """One row per operator; a full one has more columns than a terminal."""
    columns = ("operator", "gradient", "numpy", "ort", "cuda", "kept for backward")
    more = ("since", "in place", "opsets", "types", "where mathematics leaves a choice")
    shortened = ("operator", "kept for backward")
    return Table(
        columns=tuple(Column(c, kind="name" if c in shortened else "text") for c in columns)
        + tuple(Column(c) for c in more if full),
        rows=tuple(_cells(entry) + (_more_cells(entry) if full else ()) for entry in entries),
        footer=f"{LEGEND}\n{KERNEL_LEGEND}\n{PROVIDER_LEGEND}",
    )


def _cells(entry: Entry) -> tuple[str, ...]:
    return (
        entry.operator,
        entry.gradient,
        entry.kernel,
        entry.onnxruntime,
        entry.cuda,
        "" if entry.kept is None else ", ".join(entry.kept) or "nothing",
    )


def _more_cells(entry: Entry) -> tuple[str, ...]:
    return (
        _since(entry),
        "yes" if entry.in_place_inputs else "",
        _numbers(entry.opsets),
        entry.types,
        "; ".join(entry.conventions),
    )


def _since(entry: Entry) -> str:
    """The first opsets of other rules or kernels, if they differ by opset."""
    pairs = (("gradient", entry.gradient_since), ("kernel", entry.kernel_since))
    return "; ".join(f"{what} {_numbers(v)}" for what, v in pairs if max(v, default=1) > 1)


def uses_table(rows: Sequence[Use]) -> Table:
    """One row per operator of a model."""
    return Table(
        columns=(
            Column("operator", kind="name"),
            *Column.numbers("nodes"),
            Column("gradient"),
            Column("kernel"),
            Column("first node", kind="name"),
        ),
        rows=tuple((r.operator, str(r.nodes), r.gradient, r.kernel, r.first_node) for r in rows),
        footer=f"{LEGEND}\n{USE_LEGEND}",
    )


def _entry(name: str, *, composite: bool) -> Entry:
    rules = [rule for rule in gradients.rules() if rule.name == name]
    found = [kernel for kernel in kernels.kernels() if kernel.name == name]
    missing: Literal["body", "no"] = "body" if composite else "no"
    style: Literal["simple", "arena"] = "simple" if any(k.allocating for k in found) else "arena"
    return Entry(
        operator=name,
        gradient=("zero" if rules[-1].zero else "yes") if rules else missing,
        gradient_since=tuple(rule.since for rule in rules),
        kernel=style if found else missing,
        kernel_since=tuple(kernel.since for kernel in found),
        in_place_inputs=tuple(sorted({i for kernel in found for i in kernel.may_inplace})),
        opsets=facts.opsets(name),
        onnxruntime=facts.onnxruntime(name),
        cuda=facts.cuda(found),
        types=facts.types(name),
        kept=traits.of(name).residuals,
        conventions=tuple(f"{c.point}: {c.gradient}" for c in conventions.points(name)),
    )


def _use(model: ir.Model, op: str, nodes: Sequence[ir.Node], needing: set[ir.Node]) -> Use:
    domain, name = split_name(op)
    version = model.graph.opset_imports.get(domain, 1)
    composite = domain == composites.DOMAIN and composites.find(name) is not None
    rule = gradients.find(domain, name, version)
    gradient: Has = "no" if any(node in needing for node in nodes) else "-"
    if rule is not None:
        gradient = "zero" if rule.zero else "yes"
    elif composite:
        gradient = "body"
    kernel: Has = "body" if composite else "-" if name == "Constant" else "no"
    if kernels.find(domain, name, version) is not None:
        kernel = "yes"
    return Use(op, len(nodes), nodes[0].name or "(unnamed)", gradient, kernel)


def _needing_rules(model: ir.Model) -> set[ir.Node]:
    """The nodes through which a float output can depend on a parameter or a float input.

    A value of unknown type may be a float. None in a graph that holds its gradients already.
    """
    from gradtool.graph.reads import needed, reads
    from gradtool.passes.second_order import is_training_graph

    if is_training_graph(model):
        return set()
    reach = needed(model.graph, [v for v in model.graph.outputs if may_be_float(v)])
    leaves = (*model.graph.inputs, *model.graph.initializers.values())
    active = {v for v in leaves if may_be_float(v)}
    found: set[ir.Node] = set()
    for node in model.graph:
        results = [v for v in node.outputs if v in reach and may_be_float(v)]
        rule = gradients.find(
            node.domain, node.op_type, model.graph.opset_imports.get(node.domain, 1)
        )
        if results and any(v in active for v in reads(node)) and not (rule and rule.zero):
            active.update(results)
            found.add(node)
    return found


def _order(name: str) -> tuple[bool, str]:
    return "::" in name, name


def _numbers(versions: Iterable[int]) -> str:
    return ", ".join(map(str, versions))


# -------------------------------------------------------------------------------- the page

PAGE = """\
# Operators

Written by `python -m gradtool.reports.operators`; `gradtool ops` prints the same, `gradtool ops
MODEL` what a model needs. Models of any opset from 7 on are raised to 18 at least when they are
loaded, so that a rule knows one form of each operator.

- **gradient**: `yes`, a rule; `zero`, the derivative is zero by definition; `body`, by its body of
  standard operators; `no`, none.
- **numpy**: the kernel of the CPU. `arena` writes in the planned arena, `simple` returns its
  result, which is copied and counted.
- **ort**: whether stock onnxruntime {ort} runs it on the CPU, by a `kernel` or by its `body`.
- **cuda**: `cupy`, the same kernel on CuPy arrays; `host`, copied to the host and back, as text
  and numbers of types that CuPy lacks (8 bits or fewer, but for integers of 8) are by all.
- **kept for backward**: the inputs and outputs that the gradient reads, over all attributes: what
  is kept of the forward pass.
- **since**: the opsets from which there is another rule or kernel, where these differ by opset.
- **in place**: the result may be written over an input that dies.
- **opsets**: the versions of the standard that define the operator anew.
- **types**: what the standard allows for the first input. `float` stands for float16, bfloat16,
  float32 and float64, `int` and `uint` for all their sizes.

{operators}
## Where mathematics leaves a choice

PyTorch's value where frameworks differ, unless the ONNX specification decides; symmetric in
symmetric inputs; never a silent mask over a NaN. What is a number is tested by exact equality.

{conventions}"""


def page() -> str:
    """`docs/operators.md`."""
    from gradtool.text.table import markdown

    entries = [e for e in registered() if split_name(e.operator)[0] != composites.DOMAIN]
    table = registered_table(entries, full=True)
    bare = Table(table.columns, table.rows)
    return PAGE.format(
        ort=facts.ONNXRUNTIME, operators=markdown(bare), conventions=markdown(conventions_table())
    )


def conventions_table() -> Table:
    """The gradients at kinks, ties and poles."""
    return Table(
        columns=tuple(Column(c) for c in ("operators", "point", "gradient", "note")),
        rows=tuple(
            (", ".join(c.operators), c.point, c.gradient, c.note)
            for c in conventions.CONVENTIONS.entries()
        ),
    )


if __name__ == "__main__":
    import sys

    sys.stdout.write(page())
