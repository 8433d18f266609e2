"""Which options mean something together, by command: what would do nothing is refused.

A table of rules.  In their texts `{name}` stands for the flag of a parameter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradtool.errors import UsageError
from gradtool.ranks.started import is_rank
from gradtool.workloads.names import PLANS, SEARCHED

SIZES = "dims shapes batch values"
GRADIENT = (
    "loss labels wrt no_grad input_grad head_grads accumulate train_mode ste grad_buffers "
    "lora lora_target lora_alpha fuse_attention only_loss"
)
UPDATES = "optimizer_option clip_norm clip_value no_decay lr_scale sparse"
MODEL_FILE = "external_data functions barrier portable"
PLAIN = tuple(name for name in PLANS if name not in SEARCHED)
SUFFIX = ".json"
_QUESTIONS = ("report", "explain", "frontier", "max_batch")


@dataclass(frozen=True)
class Said:
    """The values of a command's parameters, and which are `given` on its line."""

    values: Mapping[str, Any]
    given: frozenset[str]


@dataclass(frozen=True)
class When:
    """Something that a command line says, and how to say it to people."""

    text: str
    holds: Callable[[Said], bool] = field(compare=False)


@dataclass(frozen=True)
class Of:
    """Options that mean something only beside one of others."""

    options: str
    beside: tuple[When, ...]

    def broken(self, said: Said) -> Iterator[str]:
        if not any(when.holds(said) for when in self.beside):
            of = " and ".join(when.text for when in self.beside)
            yield from (f"{{{name}}} is of {of}" for name in _given(self.options, said))


@dataclass(frozen=True)
class Without:
    """Options that mean nothing beside another, and why."""

    when: When
    why: str
    options: str

    def broken(self, said: Said) -> Iterator[str]:
        if self.when.holds(said):
            out = (name for name in _given(self.options, said))
            yield from (f"{self.when.text} {self.why}: leave out {{{name}}}" for name in out)


@dataclass(frozen=True)
class Apart:
    """Things of which at most one can be said."""

    choices: tuple[When, ...]

    def broken(self, said: Said) -> Iterator[str]:
        found = [when.text for when in self.choices if when.holds(said)]
        if len(found) > 1:
            yield f"{found[0]} and {found[1]} do not go together"


Rule = Of | Without | Apart


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
    """There are several of an argument, which are no folders: these are trainings."""
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
    """Whether what is compared is read, not planned."""
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

_GRADIENT = (
    Without(given("head_grads"), "is without a loss", "loss labels only_loss"),
    Of("lora_target lora_alpha", (given("lora"),)),
)
_KERNELS = Of("exact_conv", (equals("kernels", "native"),))


def _updated(parameter: str) -> Of:
    """Options of updates, where the parameter of a command names the optimizer."""
    is_named = When(f"{{{parameter}}}", lambda said: said.values[parameter] != "none")
    return Of(UPDATES, (is_named,))


_WRITTEN = (
    Without(STDOUT, "is for the model alone", "force form"),
    Without(PLAN_ALONE, "is the plan alone", MODEL_FILE),
)
_NO_CONFIG = Without(
    When("this command", lambda _: True), "reads no configuration", "config allow_code"
)
_DRAWN = (given("html"), given("trace"), given("svg"))
_TABLE = When("{ranks}", lambda said: "ranks" in said.given and "stages" not in said.given)


def _verifies(way: str) -> When:
    """Gradients are checked in a way, of which several may be given."""
    return When(f"{{verify}} {way}", lambda said: way in said.values["verify"])


def _named(argument: str) -> Without:
    return Without(given(argument), "is named, so no configuration is read", "config allow_code")


_NO_OUTPUTS = Without(given("stages"), "returns the loss alone", "only_loss")
_CUT_SUMS = Without(equals("shard", "gradients"), "is of ranks that have the whole model", "stages")
_TABLES = (
    Of("shard_tables", (given("sparse"),)),
    Of("staleness", (given("shard_tables"),)),
)

RULES: Mapping[str, tuple[Rule, ...]] = MappingProxyType({
    "grad": (
        _named("model"), *_GRADIENT, _updated("update"),
        Without(STDOUT, "is for the model alone", "force form"),
    ),
    "mirror": (
        _named("models"), *_GRADIENT, _updated("update"), _KERNELS,
        Apart((given("report"), given("explain"))),
        Without(given("report"), "writes nothing", f"output force {MODEL_FILE}"),
        Without(given("explain"), "writes nothing", f"output force {MODEL_FILE}"),
        Of("memory by checkpoints", (given("report"),)),
        Apart((given("memory"), chosen("by", "op", "phase", "tensor", "module"))),
        Of("top", (equals("by", "op", "phase", "tensor", "module"),)),
        Without(JSON, "has every row", "top"),
        Apart((given("explain"), chosen("form", "csv", "markdown"))),
        Apart((several("models"), given("explain"))),
        *_WRITTEN,
    ),
    "recompute": (
        _named("model"), *_GRADIENT, _updated("optimizer"), _KERNELS,
        Apart(tuple(map(given, GOALS))),
        Apart((given("strategy"), given("plan"))),
        Apart((given("strategy"), given("frontier"))),
        Apart((given("strategy"), given("max_batch"))),
        Apart((given("strategy"), given("checkpoints"))),
        Apart((given("budget"), chosen("strategy", *PLAIN))),
        Apart((given("max_slowdown"), chosen("strategy", *PLAIN))),
        Of("points", (given("frontier"),)),
        Of("memory", (given("max_batch"),)),
        Of("cost time_limit seed", (*map(given, ("budget", "max_slowdown", "frontier")),
                                           equals("strategy", *SEARCHED))),
        Of("prove", (given("budget"), given("max_slowdown"), equals("strategy", *SEARCHED))),
        Of("threads", (equals("cost", "time"),)),
        Without(given("frontier"), "writes nothing", f"output force {MODEL_FILE}"),
        Without(given("max_batch"), "writes nothing", f"output force {MODEL_FILE}"),
        Without(given("max_batch"), "looks for the batch", "batch"),
        *_WRITTEN,
    ),
    "report": (
        _named("models"), *_GRADIENT, _updated("update"), _KERNELS,
        Without(several("models"), "are shown side by side", "html svg trace by top"),
        Of("plan force", _DRAWN),
        Of("frontier", _DRAWN[:1]),
        Of("shard shard_tables stages sync_batchnorm micro_batches link latency cost",
           (given("ranks"),)),
        *_TABLES,
        _CUT_SUMS, _NO_OUTPUTS,
        Apart((given("shard_tables"), given("stages"))),
        Without(given("ranks"), "trains", "head_grads accumulate grad_buffers input_grad"),
        Without(_TABLE, "is a table of its own", "html"),
        Without(given("ranks"), "is a table of its own", "svg trace by top plan frontier"),
        Apart((several("models"), given("ranks"))),
        *(Without(each, "is of plans", "by top") for each in _DRAWN),
        Without(JSON, "has everything in it", "by top"),
        Without(chosen("by", "region", "op", "phase"), "shows all rows", "top"),
        Without(CSV_TOTALS, "without {by} shows regions", "top"),
    ),
    "train": (
        _named("model"),
        Apart((given("epochs"), given("steps"))),
        Without(given("memory"), "chooses them", "plan micro_batches"),
        Of("result every patience metric", (given("evaluate"),)),
        Apart((given("only_loss"), OF_OUTPUTS)),
        Of("lora_target lora_alpha lora_adapter", (given("lora"),)),
        Of("deterministic timeout shard shard_tables stages sync_batchnorm",
           (given("ranks"), BY_MPI)),
        *_TABLES,
        _CUT_SUMS, _NO_OUTPUTS,
        *(Without(given("stages"), "cuts the model", each) for each in ("memory", "shard_tables")),
        _KERNELS,
        Apart((equals("kernels", "native"), ON_CUDA)),
    ),
    "run": (
        _named("model"), *_GRADIENT, _updated("update"),
        Of("seed", (equals("inputs", "random"),)),
        Of("device kernels trace html check_nan check_arena max_turns max_dynamic threads",
           (equals("engine", "arena"),)),
        *(Apart((equals("engine", "ort"), _verifies(way))) for way in ("ort", "plans")),
        Of("force", tuple(map(given, ("save_grads", "save_outputs", "profile", "trace", "html")))),
        Of("explain_kernels", (equals("engine", "arena"),)),
        _KERNELS,
        Apart((equals("kernels", "native"), ON_CUDA)),
        Apart((equals("kernels", "cupy"), ON_CPU)),
        Without(given("explain_kernels"), "runs nothing", "repeat measure check_nan check_arena "
                "verify profile trace html save_grads save_outputs max_turns max_dynamic"),
    ),
    "kit": (_named("model"), *_GRADIENT),
    "kit merge": (_NO_CONFIG,),
    "check": (
        Of("only_improved", (given("update"),)),
        Apart((given("base"), given("update"))),
        Apart((given("base"), given("fail_on_stale"))),
        Without(RECORDS_ALL, "records whatever is there", "allow_new fail_on fail_on_stale"),
        Without(given("run"), "plans everything anew", "no_cache"),
        Without(given("listing"), "plans nothing", "update only_improved allow_new fail_on_stale "
                "fail_on base run exit_zero no_cache"),
    ),
    "compare": (
        _named("sources"), *_GRADIENT, _updated("update"), _KERNELS,
        Without(JSON, "has everything in it", "by top"),
        Without(CSV_TOTALS, "without {by} has totals", "top"),
        Of("model", (A_FILE,)),
        Without(FILES, "hold what was planned", "plans"),
        Without(FILES_ALONE, "hold what was planned",
                f"{SIZES} {GRADIENT} {UPDATES} update kernels exact_conv"),
    ),
    "ops": (
        _NO_CONFIG,
        Without(given("template"), "prints a rule", f"model missing form {SIZES}"),
        Of(SIZES, (given("model"),)),
    ),
    "init": (Without(When("this command", lambda _: True), "imports no code", "allow_code"),),
    "doctor": (_NO_CONFIG,),
    "schema": (_NO_CONFIG,),
    "completion": (_NO_CONFIG,),
})  # fmt: skip


def refuse(command: str, said: Said, flags: Mapping[str, str]) -> None:
    """Refuse a command line of which a part does nothing.

    Raises:
        UsageError: naming the flags.
    """
    for rule in RULES.get(command, ()):
        for text in rule.broken(said):
            line = text.format(**flags)
            for name, value in said.values.items():
                line = line.replace(f"[{name}]", str(value))
            raise UsageError(line)
