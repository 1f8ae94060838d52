"""Which controller a framework has: the one its rules are made for, or the one that ``framework.controller`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simrl.config.import_path import is_import_path, load_implementation
from simrl.config.schema import ConfigError, FrameworkConfig
from simrl.model.control.rule import EPISODES, GROUPS
from simrl.model.control.rules import rule_classes

if TYPE_CHECKING:
    from simrl.model.control.protocol import Controller

CONTROLLERS = {
    GROUPS: "simrl.model.control.group_controller:GroupController",
    EPISODES: "simrl.model.control.prime_rl.controller:PrimeRLController",
}
"""By what the admission rule counts; import paths, as for a user's own, so that a run loads no other than it has."""
KEY = "framework.controller"


def controller_path(framework: FrameworkConfig) -> str:
    """Return the import path of the class.

    Raises:
        ConfigError: if there is no such controller, or no admission rule that would decide.
    """
    name = framework.controller
    if name is None:
        return CONTROLLERS[rule_classes(framework)["admission"].control]
    if not is_import_path(name):
        raise ConfigError(KEY, name, "must be null (the one its rules are made for) or your own: package.module:Class")
    return name


def controller_class(framework: FrameworkConfig) -> type[Controller]:
    """Return that class.

    Raises:
        ConfigError: if it cannot be imported, or lacks what :class:`~simrl.model.control.protocol.Controller` asks for.
    """
    from simrl.model.control.protocol import Controller  # noqa: PLC0415 - loads SimPy, which a result that is there does without

    return load_implementation(KEY, controller_path(framework), Controller)  # type: ignore[no-any-return]
