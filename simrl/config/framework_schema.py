"""The framework: a staleness control, its own knobs and its look."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from simrl.config.ranges import ConfigError, at_least, one_of

WEIGHT_UPDATES = ("abort", "keep", "recompute", "drain")
FORMS = ("article", "upstream")
BOUND_BY = ("max_age", "order")
KNOB_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
KINDS = ("admission", "drop", "cancel", "wait", "ours", "layers", "placement", "")
DASHES = ("solid", "dotted", "dashed", "dashdot", "long", "double")
FOLDER_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(unsafe_hash=True)  # see EngineCosts
class Knob:
    """What a knob of a framework's own may be; its value stands in the framework's file under the knob's name."""

    unit: str = ""
    type: str = "int"
    """int | float | bool | str."""
    least: float | None = None
    most: float | None = None
    value: Any = None
    """Taken from the key beside; nobody sets it here."""

    def __post_init__(self) -> None:
        check_knob(self)


def check_knob(knob: Knob) -> None:
    """Refuse a type that no knob has."""
    one_of("framework.knobs.type", knob.type, tuple(KNOB_TYPES))


@dataclass(unsafe_hash=True)  # see EngineCosts
class Look:
    """How a framework appears in every figure; no part of a run's identity."""

    label: str = ""
    """Empty takes the framework's name."""
    colour: str = "#5b6270"
    """The hue shows the kind, the lightness tells frameworks of a kind apart."""
    marker: Any = "."
    """Matplotlib's: a letter, or [points, style, angle]."""
    dashes: str = "dotted"
    """solid | dotted | dashed | dashdot | long | double."""
    kind: str = ""
    """admission (blue) | drop (orange) | cancel (purple) | wait (green) | ours (black) | layers (the ablation) |
    placement (comes with one)."""
    order: float = 1000.0
    """Where figures list it; frameworks of one order by name."""
    article: bool = False
    """Whether it is one of the mechanisms the article compares."""

    def __post_init__(self) -> None:
        check_look(self)


def check_look(look: Look) -> None:
    """Refuse a kind of control that the figures do not know."""
    one_of("framework.look.kind", look.kind, KINDS)
    one_of("framework.look.dashes", look.dashes, DASHES)


@dataclass(frozen=True)
class FrameworkConfig:
    """A staleness control: one admission (L1), one cancellation (L2), one sampling (L3) rule and a weight update."""

    name: str
    eta: int
    """The knob the article sweeps; what it bounds is the framework's own."""
    upstream_knob: str = ""
    """What eta is called upstream."""
    upstream: str = ""
    """Repository, commit and date the rules mirror."""
    bounds: str = ""
    """What eta really bounds, for the docs."""
    differs: str = ""
    """Where the article's form and the upstream's differ, for the docs."""
    form: str = "article"
    """article | upstream, where the two differ."""
    eta_min: int = 0
    """Smallest eta the framework accepts."""
    bound_offset: int | None = None
    """No trained token is staler than eta + bound_offset; null if the framework gives no strict bound."""
    upstream_bound_offset: int | None = None
    """The same for form=upstream."""
    bound_by: str = "max_age"
    """max_age (the filter of L3: set by hand, the bound follows it) | order (whatever the filter's age is)."""
    expected_offset: int = 0
    """The staleness a user would expect of the knob is eta + expected_offset."""
    weight_update: str = "abort"
    """abort (resubmit at the tail, KV lost) | keep (freeze, KV kept) | recompute (freeze, KV recomputed) | drain."""
    logprob_recompute: bool = True
    """Whether the trainer recomputes old log-probs before the update."""
    overlap_logprob: bool = True
    """Whether rollout runs on while log-probs are recomputed."""
    overlap_update: bool = True
    """Whether rollout runs on during the update."""
    controller: str | None = None
    """A controller of your own, package.module:Class; null takes the one that the admission rule is made for."""
    admission: dict[str, Any] = field(default_factory=dict)
    """L1: {rule: name, parameters...}, see simrl/model/control/admission."""
    cancellation: dict[str, Any] = field(default_factory=lambda: {"rule": "never"})
    """L2: {rule: name, parameters...}, see simrl/model/control/cancellation."""
    sampling: dict[str, Any] = field(default_factory=dict)
    """L3: {rule: name, parameters...}, see simrl/model/control/sampling."""
    knobs: dict[str, Knob] = field(default_factory=dict)
    """The framework's own knobs beside eta; see :mod:`simrl.config.knobs`."""
    look: Look = field(default_factory=Look)

    def __post_init__(self) -> None:
        check_framework(self)

    @property
    def strict_bound(self) -> int | None:
        """Largest staleness the framework promises, versions; None if it promises none."""
        offset = self.bound_offset if self.form == "article" else self.upstream_bound_offset
        if offset is None:
            return None
        if self.bound_by == "order":
            return self.eta + offset
        sampling = self.sampling[self.form] if "article" in self.sampling else self.sampling
        max_age = sampling.get("max_age", self.eta + offset)  # set by hand it may be wider than the file's promise
        return None if max_age is None else max(max_age, self.eta + offset)


def check_framework(framework: FrameworkConfig) -> None:
    """Refuse unknown forms and weight updates, and an eta the framework does not accept."""
    if not FOLDER_NAME.fullmatch(framework.name):
        hint = (
            "names a run's folder: must be up to 100 letters, digits, _, - and ., and begin with none of the last two"
        )
        raise ConfigError("framework.name", framework.name, hint)
    one_of("framework.form", framework.form, FORMS)
    one_of("framework.weight_update", framework.weight_update, WEIGHT_UPDATES)
    one_of("framework.bound_by", framework.bound_by, BOUND_BY)
    at_least("framework.eta", framework.eta, framework.eta_min)
    for key in ("bound_offset", "upstream_bound_offset"):
        at_least(f"framework.{key}", getattr(framework, key), -framework.eta)
