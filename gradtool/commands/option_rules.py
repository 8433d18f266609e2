"""Combinations of options, by command: flags without effect are refused.

A table of rules.  In their texts `{name}` stands for the flag of a parameter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradtool.errors import UsageError
from gradtool.ranks.started import is_rank
from gradtool.workloads.grad_options import UNTRAINED, GradOptions
from gradtool.workloads.names import PLANS, SEARCHED
from gradtool.workloads.options import Option, is_met, options_of

SIZES = "dims shapes batch values"
GRADIENT = " ".join(options_of(GradOptions))
MODEL_FILE = "external_data functions barrier portable"
PLAIN = tuple(name for name in PLANS if name not in SEARCHED)
SUFFIX = ".json"
NO_SWEEP = (  # of train: what a sweep of learning rates has no use for
    "lr schedule warmup epochs evaluate result every patience metric ema output folder resume "
    "export lora_adapter trace log callback checkpoint_every keep ranks"
)
_QUESTIONS = ("report", "explain", "frontier", "max_batch")


@dataclass(frozen=True)
class Said:
    """The values of a command's parameters, and the ones `given` on its line."""

    values: Mapping[str, Any]
    given: frozenset[str]


@dataclass(frozen=True)
class When:
    """Something that a command line says, and how to say it to people."""

    text: str
    holds: Callable[[Said], bool] = field(compare=False)


@dataclass(frozen=True)
class Requires:
    """Options that mean something only beside one of others."""

    options: str
    beside: tuple[When, ...]

    def broken(self, said: Said) -> Iterator[str]:
        if not any(when.holds(said) for when in self.beside):
            needed = " or ".join(when.text for when in self.beside)
            yield from (f"{{{name}}} needs {needed}" for name in _given(self.options, said))


@dataclass(frozen=True)
class Excludes:
    """Options that mean nothing beside another, and why."""

    when: When
    why: str
    options: str

    def broken(self, said: Said) -> Iterator[str]:
        if self.when.holds(said):
            out = (name for name in _given(self.options, said))
            yield from (f"{self.when.text} {self.why}: leave out {{{name}}}" for name in out)


@dataclass(frozen=True)
class Exclusive:
    """Things of which at most one can be said."""

    choices: tuple[When, ...]

    def broken(self, said: Said) -> Iterator[str]:
        found = [when.text for when in self.choices if when.holds(said)]
        if len(found) > 1:
            yield f"{found[0]} cannot be combined with {found[1]}"


Rule = Requires | Excludes | Exclusive


def given(name: str) -> When:
    """A parameter is there."""
    return When(f"{{{name}}}", lambda said: name in said.given)


def equals(name: str, *values: object) -> When:
    """A parameter has one of some values."""
    listed = ", ".join(map(str, values[:-1])) + " or " if len(values) > 1 else ""
    return When(f"{{{name}}} {listed}{values[-1]}", lambda said: said.values[name] in values)


def chosen(name: str, *values: object) -> When:
    """A parameter is given as one of some values, and is named with its own."""
    return When(f"{{{name}}} [{name}]", lambda said: said.values[name] in values)


def several(name: str) -> When:
    """Several of an argument, but no folders: these are trainings."""
    return When(
        "several models",
        lambda said: len(said.values[name]) > 1 and not any(map(os.path.isdir, said.values[name])),
    )


def _given(names: str, said: Said) -> Iterator[str]:
    return (name for name in names.split() if name in said.given)


def _to_stdout(said: Said) -> bool:
    """Whether a model is written there: a command that answers a question writes none."""
    if said.given.intersection(_QUESTIONS):
        return False
    sources = said.values.get("models") or (said.values.get("model"),)
    return (said.values["output"] or sources[0]) == "-"


def _is_file(source: str) -> bool:
    """Whether both sides are read, not planned."""
    return source.endswith(SUFFIX)


PLAN_ALONE = When(f"-o FILE{SUFFIX}", lambda s: (s.values["output"] or "").endswith(SUFFIX))
STDOUT = When("-o -", _to_stdout)
JSON = equals("form", "json")
BY_MPI = When("mpirun", lambda _said: is_rank())
FILES = When(
    "files", lambda s: bool(s.values["sources"]) and all(map(_is_file, s.values["sources"]))
)
FILES_ALONE = When("files", lambda s: FILES.holds(s) and not s.values["model"])
A_FILE = When(f"FILE{SUFFIX}", lambda s: any(map(_is_file, s.values["sources"])))
CSV_TOTALS = When("{form} csv", lambda s: s.values["form"] == "csv" and s.values["by"] is None)
ON_CPU = When("{device} cpu", lambda s: s.values["device"] == "cpu")
ON_CUDA = When("{device} cuda", lambda s: s.values["device"].startswith("cuda"))
RECORDS_ALL = When("{update}", lambda s: s.values["update"] and not s.values["only_improved"])
OF_OUTPUTS = When(
    "a {metric} of outputs", lambda s: not {"loss", "perplexity"}.issuperset(s.values["metric"])
)
GOALS = ("plan", "frontier", "max_batch", "checkpoints", "budget", "max_slowdown")


def _of_record(record: type[Any]) -> tuple[Rule, ...]:
    """The rules that the fields of a record have."""
    found: list[Rule] = []
    known = options_of(record)
    for name, each in known.items():
        found += [Requires(name, (_needed(need, known),)) for need in each.needs.split()]
        if each.why:
            found.append(Excludes(given(name), each.why, each.excludes))
        else:
            found += [Exclusive((given(name), given(other))) for other in each.excludes.split()]
    return tuple(found)


def _needed(text: str, known: Mapping[str, Option]) -> When:
    """The need of an option, as the flag that meets it."""
    flag, equals, value = text.partition("=")
    said = f"{{{flag}}} {value}" if equals else f"{{{flag}}}"
    return When(said, lambda line: is_met(text, line.values, known))


_WRITTEN = (
    Excludes(STDOUT, "is for the model alone", "force form"),
    Excludes(PLAN_ALONE, "is the plan alone", MODEL_FILE),
)
_NO_CONFIG = Excludes(
    When("this command", lambda _: True), "reads no configuration", "config allow_code"
)
_DRAWN = (given("html"), given("trace"), given("svg"))
_TABLE = When("{ranks}", lambda said: "ranks" in said.given and "stages" not in said.given)


def _verifies(way: str) -> When:
    """Gradients are checked in a way, of which several may be given."""
    return When(f"{{verify}} {way}", lambda said: way in said.values["verify"])


def _named(argument: str) -> Excludes:
    return Excludes(given(argument), "is named, so no configuration is read", "config allow_code")


_NO_OUTPUTS = Excludes(given("stages"), "returns the loss alone", "only_loss")
_CUT_SUMS = Excludes(
    equals("shard", "gradients"), "is of ranks that have the whole model", "stages"
)
_TABLES = (
    Requires("shard_tables", (given("sparse"),)),
    Requires("staleness", (given("shard_tables"),)),
)

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType({
    "grad": (
        _named("model"),
        Excludes(STDOUT, "is for the model alone", "force form"),
    ),
    "mirror": (
        _named("models"),
        Exclusive((given("report"), given("explain"))),
        Excludes(given("report"), "writes nothing", f"output force {MODEL_FILE}"),
        Excludes(given("explain"), "writes nothing", f"output force {MODEL_FILE}"),
        Requires("memory by checkpoints", (given("report"),)),
        Exclusive((given("memory"), chosen("by", "op", "phase", "tensor", "module"))),
        Requires("top", (equals("by", "op", "phase", "tensor", "module"),)),
        Excludes(JSON, "has every row", "top"),
        Exclusive((given("explain"), chosen("form", "csv", "markdown"))),
        Exclusive((several("models"), given("explain"))),
        *_WRITTEN,
    ),
    "recompute": (
        _named("model"),
        Exclusive(tuple(map(given, GOALS))),
        Exclusive((given("strategy"), given("plan"))),
        Exclusive((given("strategy"), given("frontier"))),
        Exclusive((given("strategy"), given("max_batch"))),
        Exclusive((given("strategy"), given("checkpoints"))),
        Exclusive((given("budget"), chosen("strategy", *PLAIN))),
        Exclusive((given("max_slowdown"), chosen("strategy", *PLAIN))),
        Requires("points", (given("frontier"),)),
        Requires("memory", (given("max_batch"),)),
        Requires("cost time_limit seed", (*map(given, ("budget", "max_slowdown", "frontier")),
                                           equals("strategy", *SEARCHED))),
        Requires("prove", (given("budget"), given("max_slowdown"), equals("strategy", *SEARCHED))),
        Requires("threads", (equals("cost", "time"),)),
        Excludes(given("frontier"), "writes nothing", f"output force {MODEL_FILE}"),
        Excludes(given("max_batch"), "writes nothing", f"output force {MODEL_FILE}"),
        Excludes(given("max_batch"), "looks for the batch", "batch"),
        *_WRITTEN,
    ),
    "report": (
        _named("models"),
        Excludes(several("models"), "are shown side by side", "html svg trace by top"),
        Requires("plan force", _DRAWN),
        Requires("frontier", _DRAWN[:1]),
        Requires("shard shard_tables stages sync_batchnorm micro_batches link latency cost",
           (given("ranks"),)),
        *_TABLES,
        _CUT_SUMS, _NO_OUTPUTS,
        Exclusive((given("shard_tables"), given("stages"))),
        Excludes(given("ranks"), "trains", f"accumulate {' '.join(UNTRAINED)}"),
        Excludes(_TABLE, "is a table of its own", "html"),
        Excludes(given("ranks"), "is a table of its own", "svg trace by top plan frontier"),
        Exclusive((several("models"), given("ranks"))),
        *(Excludes(each, "is of plans", "by top") for each in _DRAWN),
        Excludes(JSON, "has everything in it", "by top"),
        Excludes(chosen("by", "region", "op", "phase"), "shows all rows", "top"),
        Excludes(CSV_TOTALS, "without {by} shows regions", "top"),
    ),
    "train": (
        _named("model"),
        Requires("result every patience metric", (given("evaluate"), given("split"))),
        Exclusive((given("evaluate"), given("split"))),
        Exclusive((given("only_loss"), OF_OUTPUTS)),
        Requires("lora_adapter", (given("lora"),)),
        Requires("export", (given("resume"),)),
        Requires("html", (given("find_lr"),)),
        Requires("force", (given("html"), When("a training", lambda s: not s.values["find_lr"]))),
        Excludes(given("find_lr"), "tries rates and writes no weights", NO_SWEEP),
        Requires("deterministic timeout shard shard_tables stages sync_batchnorm",
           (given("ranks"), BY_MPI)),
        *_TABLES,
        _CUT_SUMS, _NO_OUTPUTS,
        Exclusive((equals("kernels", "native"), ON_CUDA)),
    ),
    "run": (
        _named("model"),
        Requires("seed", (equals("inputs", "random"),)),
        Requires("device kernels trace html threads", (equals("engine", "arena"),)),
        *(Exclusive((equals("engine", "ort"), _verifies(way))) for way in ("ort", "plans")),
        Requires("force", tuple(
            map(given, ("save_grads", "save_outputs", "profile", "trace", "html")))),
        Requires("explain_kernels", (equals("engine", "arena"),)),
        Exclusive((equals("kernels", "native"), ON_CUDA)),
        Exclusive((equals("kernels", "cupy"), ON_CPU)),
        Excludes(given("explain_kernels"), "runs nothing", "repeat measure check_nan check_arena "
                "verify profile trace html save_grads save_outputs max_turns max_dynamic"),
    ),
    "kit": (_named("model"),),
    "kit merge": (_NO_CONFIG,),
    "check": (
        Requires("only_improved", (given("update"),)),
        Exclusive((given("base"), given("update"))),
        Exclusive((given("base"), given("fail_on_stale"))),
        Excludes(RECORDS_ALL, "records whatever is there", "allow_new fail_on fail_on_stale"),
        Excludes(given("run"), "plans everything anew", "no_cache"),
        Excludes(given("listing"), "plans nothing", "update only_improved allow_new fail_on_stale "
                "fail_on base run exit_zero no_cache"),
    ),
    "compare": (
        _named("sources"),
        Excludes(JSON, "has everything in it", "by top"),
        Excludes(CSV_TOTALS, "without {by} has totals", "top"),
        Requires("model", (A_FILE,)),
        Excludes(FILES, "hold what was planned", "plans"),
        Excludes(FILES_ALONE, "hold what was planned",
                f"{SIZES} {GRADIENT} kernels exact_conv"),
    ),
    "ops": (
        _NO_CONFIG,
        Excludes(given("template"), "prints a rule", f"model missing form {SIZES}"),
        Requires(SIZES, (given("model"),)),
    ),
    "init": (Excludes(When("this command", lambda _: True), "imports no code", "allow_code"),),
    "doctor": (_NO_CONFIG,),
    "schema": (_NO_CONFIG,),
    "completion": (_NO_CONFIG,),
})  # fmt: skip


def refuse(
    command: str, said: Said, flags: Mapping[str, str], records: Sequence[type[Any]] = ()
) -> None:
    """Refuse flags without effect on a command line, by its rules and its records' rules.

    Raises:
        UsageError: naming the flags.
    """
    of_records = (rule for record in records for rule in _of_record(record))
    for rule in (*of_records, *RULES.get(command, ())):
        for text in rule.broken(said):
            line = text.format(**flags)
            for name, value in said.values.items():
                line = line.replace(f"[{name}]", str(value))
            raise UsageError(line)
