"""Build a framework's three rules from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from simrl.config.import_path import is_import_path, load_class
from simrl.config.parameters import build
from simrl.config.schema import ConfigError, FrameworkConfig
from simrl.model.control.admission import Admission
from simrl.model.control.cancellation import Cancellation
from simrl.model.control.rule import ANY, Rule
from simrl.model.control.rule_names import RULES
from simrl.model.control.sampling import Sampling

BASES: dict[str, type[Rule]] = {"admission": Admission, "cancellation": Cancellation, "sampling": Sampling}


class Rules(NamedTuple):
    """The composition: one rule for each layer."""

    admission: Admission
    cancellation: Cancellation
    sampling: Sampling


class Spec(NamedTuple):
    """What a framework says of one layer, in the form it has."""

    key: str
    """Where it stands in the configuration."""
    rule: Any
    parameters: Mapping[str, Any]


def spec_of(framework: FrameworkConfig, layer: str) -> Spec:
    """Return the rule of a layer and its parameters.

    Raises:
        ConfigError: for keys beside the two forms of a layer that has them.
    """
    given: dict[str, Any] = getattr(framework, layer)
    key = f"framework.{layer}"
    if "article" in given or "upstream" in given:
        for other, value in given.items():
            if other not in ("article", "upstream"):
                hint = f"the {layer} of {framework.name} has two forms; set {key}.{framework.form}.{other}"
                raise ConfigError(f"{key}.{other}", value, hint)
        key = f"{key}.{framework.form}"
        given = given.get(framework.form) or {}
        if not isinstance(given, dict):
            raise ConfigError(key, given, "must hold a rule and its parameters")
    parameters = dict(given)
    return Spec(key, parameters.pop("rule", None), parameters)


def rule_path(layer: str, name: Any, key: str) -> str:
    """Return the import path of the rule that *name* is: one of :data:`RULES`, or the path of a user's own.

    Raises:
        ConfigError: if there is no such rule in that layer.
    """
    if is_import_path(name):
        return str(name)
    known = RULES[layer]
    if not isinstance(name, str) or name not in known:
        raise ConfigError(key, name, f"must be one of {', '.join(known)}, or your own: package.module:Class")
    return known[name]


def rule_class(layer: str, name: Any, key: str) -> type[Rule]:
    """Return the class of that rule."""
    path = rule_path(layer, name, key)
    return load_class(key, path, BASES[layer])


def rule_classes(framework: FrameworkConfig) -> dict[str, type[Rule]]:
    """Return the class of each layer's rule."""
    specs = {layer: spec_of(framework, layer) for layer in RULES}
    return {layer: rule_class(layer, spec.rule, f"{spec.key}.rule") for layer, spec in specs.items()}


def compose_rules(framework: FrameworkConfig) -> Rules:
    """Return the rules of *framework*.

    Raises:
        ConfigError: for a rule or a parameter that does not exist or cannot be, and for rules that do not go together.
    """
    specs = {layer: spec_of(framework, layer) for layer in RULES}
    built: dict[str, Any] = {}
    for layer, kind in rule_classes(framework).items():
        spec = specs[layer]
        rule = build(kind, spec.rule, spec.key, spec.parameters)
        eta = getattr(rule, "eta", framework.eta)
        if eta != framework.eta:  # deadlines and reservations mean one eta at both ends
            raise ConfigError(f"{spec.key}.eta", eta, f"must be framework.eta ({framework.eta}); set that instead")
        built[layer] = rule
    if type(built["sampling"]) is type(built["admission"]):  # one protocol that speaks at both ends has one memory
        built["sampling"] = built["admission"]
    rules = Rules(**built)
    for layer, rule in built.items():
        if rule.control not in (ANY, rules.admission.control):
            raise ConfigError(
                f"{specs[layer].key}.rule",
                specs[layer].rule,
                f"cannot work with {specs['admission'].key}.rule={specs['admission'].rule}: one counts {rule.control}, "
                f"the other {rules.admission.control}; see the files in conf/framework for rules that go together",
            )
    return rules
