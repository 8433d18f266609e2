"""The optimizers: their rules, their settings, and the state that they keep.

Source: torch.optim (PyTorch 2), whose formulas, default numbers and names of state these are, and
for LAMB and Lion the papers named by their formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gradtool.errors import UsageError
from gradtool.graph.optimizers import OPTIMIZERS as NAMES
from gradtool.passes import update_rules as rules
from gradtool.passes.update_settings import Given, Setting, Settings, settle


@dataclass(frozen=True)
class Optimizer:
    """A way to update parameters, its settings, and its state by parameter.

    Steps are counted where `counts`.  `by_rows` updates a table by the rows that have a gradient.
    Where it is by `elements`, an element's update depends on no other one.
    """

    rule: rules.Rule
    settings: Settings
    state: rules.States = rules.none
    counts: Callable[[Setting], bool] = lambda _: False
    by_rows: rules.Rule | None = None
    elements: bool = True


def _always(_: Setting) -> bool:
    return True


def _dampens(setting: Setting) -> bool:
    return "dampening" in setting


_ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999}
_MEANS = rules.same("exp_avg", "exp_avg_sq")
_SGD = ("dampening", "weight_decay")
_NESTEROV = MappingProxyType({"nesterov": False})

OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType({
    "sgd": Optimizer(
        rules.sgd, Settings({"lr": 1e-3}, ("momentum", *_SGD), switches=_NESTEROV),
        rules.of_sgd, _dampens, rules.sgd,
    ),
    "momentum": Optimizer(
        rules.sgd, Settings({"lr": 1e-3, "momentum": 0.9}, _SGD, switches=_NESTEROV),
        rules.of_sgd, _dampens,
    ),
    "adam": Optimizer(
        rules.adam, Settings(_ADAM, ("weight_decay",), {"epsilon": 1e-8}), _MEANS, _always,
        rules.lazy_adam,
    ),
    "adamw": Optimizer(
        rules.adamw, Settings(_ADAM | {"weight_decay": 1e-2}, (), {"epsilon": 1e-8}), _MEANS,
        _always, rules.lazy_adam,
    ),
    "adagrad": Optimizer(
        rules.adagrad, Settings({"lr": 1e-2}, ("weight_decay",), {"epsilon": 1e-10}),
        rules.same("sum"), by_rows=rules.adagrad,
    ),
    "rmsprop": Optimizer(
        rules.rmsprop,
        Settings({"lr": 1e-2, "alpha": 0.99}, ("momentum", "weight_decay"), {"epsilon": 1e-8},
                 {"centered": False}),
        rules.of_rmsprop,
    ),
    "lamb": Optimizer(
        rules.lamb, Settings(_ADAM | {"weight_decay": 1e-2}, (), {"epsilon": 1e-6}), _MEANS,
        _always, elements=False,
    ),
    "lion": Optimizer(
        rules.lion, Settings({"lr": 1e-4, "beta1": 0.9, "beta2": 0.99}, ("weight_decay",)),
        rules.same("exp_avg"),
    ),
    "adafactor": Optimizer(
        rules.adafactor,
        Settings({"lr": 1e-2, "beta2_decay": -0.8}, ("weight_decay",),
                 {"clip_threshold": 1.0, "epsilon1": 0.0, "epsilon2": 1e-3}),
        rules.of_adafactor, _always, elements=False,
    ),
    "muon": Optimizer(
        rules.muon,
        Settings(
            {**_ADAM, "momentum": 0.95, "weight_decay": 0.1}, (),
            {"epsilon": 1e-7, "adam_epsilon": 1e-8, "ns_steps": 5, "ns_a": 3.4445,
             "ns_b": -4.775, "ns_c": 2.0315},
            {"nesterov": True}, {"adjust": tuple(rules.ADJUST)},
        ),
        rules.of_muon, _always, elements=False,
    ),
})  # fmt: skip


def kind_of(name: str, given: Given = ()) -> tuple[Optimizer, Setting]:
    """An optimizer by name, and its settings.

    Raises:
        UsageError: there is none of that name, or it has no such setting.
    """
    found = OPTIMIZERS.get(name)
    if found is None:
        raise UsageError(f"no optimizer {name!r}; there are {', '.join(NAMES)}")
    setting = settle(name, found.settings, given)
    if "momentum" not in setting and ("dampening" in setting or setting.fixed.get("nesterov")):
        raise UsageError(f"{name}: nesterov and dampening are of a momentum: give one")
    if "dampening" in setting and setting.fixed.get("nesterov"):
        raise UsageError(f"{name}: nesterov has no dampening, as in torch.optim.SGD")
    return found, setting
