"""Build a framework's three rules from its configuration."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from simrl.config.schema import ConfigError, FrameworkConfig
from simrl.model.control import admission, cancellation, sampling
from simrl.model.control.deadline import Backlog, MostUrgent
from simrl.model.control.prime_rl.concurrency import AdaptiveConcurrency
from simrl.model.control.prime_rl.orchestrator import OlderThanCollecting
from simrl.model.control.prime_rl.train_sink import FifoSink
from simrl.model.control.psrl import Reservations
from simrl.model.control.rule import ANY

ACCEPTED = {
    "float | None": (int, float, type(None)),
    "int": (int,),
    "int | None": (int, type(None)),
    "bool": (bool,),
    "str": (str,),
    "float": (int, float),
}


ADMISSION: dict[str, type[admission.Admission]] = {
    **admission.RULES,
    "adaptive_concurrency": AdaptiveConcurrency,
    "backlog": Backlog,
    "reservations": Reservations,
}
CANCELLATION: dict[str, type[cancellation.Cancellation]] = {
    **cancellation.RULES,
    "older_than_collecting": OlderThanCollecting,
}
SAMPLING: dict[str, type[sampling.Sampling]] = {
    **sampling.RULES,
    "fifo_sink": FifoSink,
    "most_urgent": MostUrgent,
    "reservations": Reservations,
}


class Rules(NamedTuple):
    """The composition: one rule for each layer."""

    admission: admission.Admission
    cancellation: cancellation.Cancellation
    sampling: sampling.Sampling


def build_rule(layer: str, spec: dict[str, Any], registry: dict[str, type[Any]]) -> Any:
    """Return the rule that *spec* names, with its parameters.

    Raises:
        ConfigError: for a rule or parameter that does not exist, is missing or has the wrong type.
    """
    key = f"framework.{layer}"
    name = spec.get("rule")
    if name not in registry:
        raise ConfigError(f"{key}.rule", name, f"must be one of {', '.join(registry)}")
    known = {parameter.name: parameter for parameter in fields(registry[name]) if parameter.init}
    given = {parameter: value for parameter, value in spec.items() if parameter != "rule"}
    for parameter, value in given.items():
        if parameter not in known:
            raise ConfigError(f"{key}.{parameter}", value, f"unknown; {name} takes {', '.join(known) or 'nothing'}")
        accepted = ACCEPTED[str(known[parameter].type)]
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in accepted):
            raise ConfigError(f"{key}.{parameter}", value, f"must be of type {known[parameter].type}")
    for needed in known.values():
        if needed.default is MISSING and needed.name not in given:
            raise ConfigError(f"{key}.{needed.name}", None, f"give a value: {name} needs it")
    return registry[name](**given)


def compose_rules(framework: FrameworkConfig) -> Rules:
    """Return the rules of *framework*."""

    def of_form(spec: dict[str, Any]) -> dict[str, Any]:
        return spec[framework.form] if "article" in spec else spec

    admitting = build_rule("admission", of_form(framework.admission), ADMISSION)
    picking = build_rule("sampling", of_form(framework.sampling), SAMPLING)
    for layer, rule in (("admission", admitting), ("sampling", picking)):
        eta = getattr(rule, "eta", framework.eta)
        if eta != framework.eta:  # deadlines and reservations mean one eta at both ends
            raise ConfigError(
                f"framework.{layer}.eta", eta, f"must be framework.eta ({framework.eta}); set that instead"
            )
    if type(picking) is type(admitting):  # one protocol that speaks at both ends has one memory
        picking = admitting
    rules = Rules(admitting, build_rule("cancellation", of_form(framework.cancellation), CANCELLATION), picking)
    admission_rule = of_form(framework.admission)["rule"]
    for layer, rule in rules._asdict().items():
        if rule.control not in (ANY, admitting.control):
            raise ConfigError(
                f"framework.{layer}.rule",
                of_form(getattr(framework, layer))["rule"],
                f"cannot work with framework.admission.rule={admission_rule}: one counts {rule.control}, the other "
                f"{admitting.control}; see the files in conf/framework for rules that go together",
            )
    return rules
