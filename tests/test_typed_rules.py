"""Typed rules: every parameter is a key of its YAML, checked once by its field's annotation; knobs of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from omegaconf import OmegaConf

from simrl.config.compose import plain
from simrl.config.framework_schema import DASHES
from simrl.config.option_folders import config_folder
from simrl.config.parameters import AtLeast, AtMost, MoreThan, build, parameters_of
from simrl.config.schema import ConfigError, SimulationConfig
from simrl.model.control.rule_names import RULES
from simrl.model.control.rules import compose_rules, rule_class
from simrl.model.metrics import summarise
from simrl.model.simulation import prepare, simulate
from simrl.plots import style
from tests.conftest import compose_config

FILES = sorted((Path(config_folder()) / "framework").glob("*.yaml"))
Configure = Callable[..., SimulationConfig]


def specs_of(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the layer and the rule with its keys for every layer and form of a framework's file."""
    content: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    for layer in RULES:
        spec = content[layer]
        yield from ((layer, form) for form in (spec.values() if "article" in spec else (spec,)))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_keys_of_a_layer_are_the_parameters_of_its_rule(file: Path) -> None:
    """In every layer and form, so that each can be set without a +; each says its unit or meaning beside it."""
    for layer, spec in specs_of(file):
        known = parameters_of(rule_class(layer, spec["rule"], layer))
        assert set(spec) - {"rule"} == set(known), f"{layer} of {file.stem}"
    below = file.read_text().partition("\nadmission:\n")[2].splitlines()
    keys = [line for line in below if re.match(r" +\w+: ", line) and "rule:" not in line]
    assert all("#" in line for line in keys), [line for line in keys if "#" not in line]


def test_a_parameter_that_is_off_is_set_without_a_plus(configure: Configure) -> None:
    """An optional parameter is a key like any other."""
    config = configure("framework=verl_drop", "framework.admission.max_concurrent_rollouts=2")
    assert compose_rules(config.framework).admission.max_concurrent_rollouts == 2  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Sample:
    """Parameters of every kind."""

    count: Annotated[int, AtLeast(1)]
    share: Annotated[float | None, MoreThan(0)] = None
    name: str | None = None
    order: Literal["first", "last"] | None = "first"
    whole: bool = False
    anything: Any = None

    def __post_init__(self) -> None:
        if self.whole and self.share:
            raise ConfigError("share", self.share, "goes with whole=false")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a.count=None: give a value: sample needs it"),
        ({"count": None}, "a.count=None: must be a whole number"),
        ({"count": 0}, "a.count=0: must be 1 or more"),
        ({"count": True}, "a.count=True: must be a whole number"),
        ({"count": 1.0}, "a.count=1.0: must be a whole number"),
        ({"count": 1, "share": 0}, "a.share=0: must be more than 0"),
        ({"count": 1, "share": float("nan")}, "a.share=nan: must be more than 0"),
        ({"count": 1, "share": float("inf")}, "a.share=inf: must be finite"),
        ({"count": 1, "share": "half"}, "a.share=half: must be a number or null"),
        ({"count": 1, "name": 3}, "a.name=3: must be text or null"),
        ({"count": 1, "order": "middle"}, "a.order=middle: must be one of first, last, null"),
        ({"count": 1, "whole": 1}, "a.whole=1: must be true or false"),
        ({"count": 1, "whole": True, "share": 0.5}, "a.share=0.5: goes with whole=false"),
        ({"count": 1, "ways": 2}, "a.ways=2: unknown; sample takes count, share, name, order, whole, anything. "),
    ],
)
def test_a_value_that_a_field_does_not_allow_is_one_line(given: dict[str, Any], message: str) -> None:
    """Type, choice and range come from the annotation, the key from where the parameter stands."""
    with pytest.raises(ConfigError) as refused:
        build(Sample, "sample", "a", given)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    "given", [{"share": 1}, {"share": None}, {"name": "x"}, {"name": None}, {"order": None}, {"anything": [1]}]
)
def test_what_a_field_allows_is_taken(given: dict[str, Any]) -> None:
    """A whole number is a float, null is what the annotation says, Any is anything."""
    made = build(Sample, "sample", "a", {"count": 2, **given})
    assert {name: getattr(made, name) for name in given} == given


def test_another_rule_on_the_command_line_says_which_keys_are_in_its_way(configure: Configure) -> None:
    """Keys of the file's own rule are named unless they are off; without them the rule runs with its defaults."""
    chosen = ("framework=verl_drop", "framework.sampling.rule=completion_order")
    with pytest.raises(ConfigError) as refused:
        prepare(configure(*chosen))
    assert str(refused.value).startswith("framework.sampling.ties=completion: unknown; completion_order takes max_age")
    away = re.findall(r"'(~[\w.]+)'", str(refused.value))
    prepare(configure(*chosen, *away))


def test_another_rule_takes_its_parameters_without_a_plus(configure: Configure) -> None:
    """A parameter that the file lacks is set as simply as one it has; one that is needed is asked for."""
    with pytest.raises(ConfigError, match=r"^framework\.cancellation\.max_age=None: give a value: older_than needs it"):
        prepare(configure("framework.cancellation.rule=older_than"))
    prepare(configure("framework.cancellation.rule=older_than", "framework.cancellation.max_age=1"))


def test_a_layer_with_two_forms_is_set_in_one_of_them(configure: Configure) -> None:
    """A key beside the forms would change nothing: it is refused with the key that does."""
    with pytest.raises(ConfigError, match=r"has two forms; set framework\.sampling\.article\.rule$"):
        prepare(configure("framework=roll", "framework.sampling.rule=completion_order"))


def test_a_rule_needs_a_name(configure: Configure) -> None:
    """No rule, and what is no name, get the names there are."""
    for rule in ("null", "[a]", "nope"):
        with pytest.raises(ConfigError, match=r"must be one of never, older_than, .* package\.module:Class$"):
            prepare(configure(f"framework.cancellation.rule={rule}"))


def test_the_promise_of_an_order_holds_without_a_filter(configure: Configure) -> None:
    """OpenRLHF's batches train in order: no filter of L3 widens or ends that promise."""
    config = configure("framework=openrlhf", "framework.form=upstream", "framework.eta=3")
    assert config.framework.sampling["max_age"] is None
    assert config.framework.strict_bound == 3


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-1", "framework.warmup=-1: must be 0 or more"),
        ("1.5", "framework.warmup=1.5: must be a whole number"),
        ("many", "framework.warmup=many: must be a whole number"),
        ("null", "framework.warmup=None: must be a whole number"),
    ],
)
def test_a_knob_is_held_to_its_declaration(configure: Configure, value: str, message: str) -> None:
    """Type and range of a framework's own knob stand in its file."""
    with pytest.raises(ConfigError) as refused:
        configure("framework=verl_drop", f"framework.warmup={value}")
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("framework.warmup=3",), "framework.warmup=3: no such key; framework has "),
        (
            ("framework=verl_drop", "framework.knobs.warmup.value=3"),
            "framework.knobs.warmup.value=3: set framework.warm",
        ),
        (
            ("framework=verl_drop", "framework.knobs.warmup.type=list"),
            "framework.knobs.type=list: must be one of int, ",
        ),
        (("framework.look.kind=new",), "framework.look.kind=new: must be one of admission, "),
    ],
)
def test_what_no_framework_declares_is_refused(configure: Configure, overrides: tuple[str, ...], message: str) -> None:
    """A knob of another framework is no key; a declaration has no value of its own and a known type."""
    with pytest.raises(ConfigError) as refused:
        configure(*overrides)
    assert str(refused.value).startswith(message)


def test_a_knob_reaches_its_rules_the_summary_and_the_stored_configuration(configure: Configure) -> None:
    """By interpolation, under its own key and, verl's, as the column the article's tables have."""
    config = configure("framework=verl_drop", "framework.warmup=3", "versions=1", "groups_per_batch=2")
    assert config.framework.admission["ahead"] == 3
    assert plain(config)["framework"]["warmup"] == 3
    assert summarise(config, simulate(config), "x")["warmup"] == 3
    assert summarise(compose_config("versions=1"), simulate(compose_config("versions=1")), "x")["warmup"] is None


def test_every_framework_says_how_it_looks() -> None:
    """Figures list the article's fourteen, then the others, then its four layers, each by its file's ``order``."""
    listed = [*style.ARTICLE_FRAMEWORKS, *style.NEW_FRAMEWORKS, *style.PLACED_FRAMEWORKS, *style.LAYERS]
    assert list(style.LOOKS) == listed, "look.order: after the article's, before the layers'"
    assert len(style.ARTICLE_FRAMEWORKS) == 14, "look.article: true is for the mechanisms that the article compares"
    assert (set(style.NEW_FRAMEWORKS) >= {"psrl", "deadline"}, len(style.LAYERS)) == (True, 4)
    assert set(style.LOOKS) == {file.stem for file in FILES}
    assert set(style.DASHES) == set(DASHES)


def test_a_look_that_no_figure_can_draw_is_refused(tmp_path: Path) -> None:
    """A key or a value that no look has is one line, and a file without a look has none."""
    (tmp_path / "framework").mkdir()
    file = tmp_path / "framework" / "mine.yaml"
    file.write_text("name: mine\n")
    assert style.read_looks(tmp_path) == {}
    for look, message in (
        ("{color: red}", "color=red: no such key"),
        ("{dashes: wavy}", "dashes=wavy: must be one of"),
    ):
        file.write_text(f"name: mine\nlook: {look}\n")
        with pytest.raises(ConfigError, match=rf"^framework\.look\.{message}"):
            style.read_looks(tmp_path)


@pytest.mark.parametrize("first", [AtLeast(0), MoreThan(0)])
def test_limits_of_one_number_are_not_taken_for_each_other(first: AtLeast | MoreThan) -> None:
    """A parameter that may be 0 may be so whichever other annotations with a 0 Python saw before.

    Python 3.11.2 hands out one object for ``Annotated`` of equal marks, later ones tell their types apart.
    """
    assert len({AtLeast(0), MoreThan(0), AtMost(0)}) == 3
    read = {}
    for limit in (first, AtLeast(0), MoreThan(0)):
        kind = make_dataclass("Kind", [("value", Annotated[float, limit])])
        read[type(limit)] = parameters_of(kind)["value"]
    read[AtLeast].check("value", 0)
    with pytest.raises(ConfigError, match="must be more than 0"):
        read[MoreThan].check("value", 0)
