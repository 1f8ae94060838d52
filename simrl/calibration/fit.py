"""Damped Gauss-Newton in the unit box of the parameters, and what the data do not identify.

Every figure is a mean over the same seeds, so that misfits are smooth in the parameters. Held-out targets are run once,
when the fit is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from simrl.calibration.forward_model import ForwardModel
from simrl.calibration.spec import Parameter, Spec
from simrl.calibration.targets import Target

DIFFERENCE = 0.04  # forward difference in the unit box: wide, for a simulation is not smooth below that
RIDGE = 1e-3  # keeps the step finite along what the data do not fix
DAMPING = (0.0, 0.03, 0.3)
NOT_IDENTIFIED = 0.1  # singular values below this share of the largest are not identified
ALIKE = 0.95  # two parameters whose effects on the targets have this cosine or more act as one
NAMED = 0.2  # least weight of a parameter that is named in a combination
AT_BOUND = 1e-3  # of the range


@dataclass(frozen=True)
class Fit:
    """The outcome of a calibration."""

    spec: Spec
    place: np.ndarray
    """Fitted place in the unit box, one number a parameter."""
    before: np.ndarray
    """The targets' figures at the start, one a target."""
    found: np.ndarray
    """The same at the fitted values."""
    jacobian: np.ndarray
    """Change of the fitted targets' misfits (tolerances) over each parameter's range, at the fitted values."""

    @property
    def values(self) -> dict[str, float]:
        """Fitted value by key."""
        return {p.key: p.value(float(unit)) for p, unit in zip(self.spec.parameters, self.place, strict=True)}

    def bound_of(self, number: int) -> str | None:
        """Return which bound a parameter ended at: low, high or None."""
        unit = self.place[number]
        return "low" if unit <= AT_BOUND else "high" if unit >= 1 - AT_BOUND else None


def misfits(found: np.ndarray, targets: Sequence[Target]) -> np.ndarray:
    """Return the misfit of each target in tolerances."""
    return np.array([target.misfit(float(ours)) for ours, target in zip(found, targets, strict=True)])


def fit(model: ForwardModel, report: Callable[[str], None]) -> Fit:
    """Return the parameters that meet the fitted targets best."""
    spec, targets = model.spec, model.spec.fitted
    place = start = np.array([p.unit(p.start) for p in spec.parameters])
    misfit = misfits(model.evaluate([place], targets, "start")[0], targets)
    for turn in range(1, spec.rounds + 1):
        report(f"round {turn} of {spec.rounds}: mean squared misfit {np.mean(misfit**2):.4g}")
        jacobian = slopes(model, place, misfit, f"round {turn}, slopes")
        tries = [step(place, jacobian, misfit, damping) for damping in DAMPING]
        outcomes = [misfits(found, targets) for found in model.evaluate(tries, targets, f"round {turn}, steps")]
        best = min(range(len(tries)), key=lambda n: float(np.mean(outcomes[n] ** 2)))
        if np.mean(outcomes[best] ** 2) >= np.mean(misfit**2):
            report("no step improves the fit")
            break
        place, misfit = tries[best], outcomes[best]
    else:
        jacobian = slopes(model, place, misfit, "slopes at the end")
    report(f"mean squared misfit {np.mean(misfit**2):.4g}")
    before, found = model.evaluate([start, place], spec.targets, "held-out targets as well")
    return Fit(spec, place, before, found, jacobian)


def slopes(model: ForwardModel, place: np.ndarray, misfit: np.ndarray, what: str) -> np.ndarray:
    """Return the change of each fitted target's misfit over each parameter's range; shape (targets, parameters)."""
    steps = [DIFFERENCE if unit + DIFFERENCE <= 1 else -DIFFERENCE for unit in place]
    moved = [place + change * np.eye(len(place))[n] for n, change in enumerate(steps)]
    found = model.evaluate(moved, model.spec.fitted, what)
    columns = [(misfits(f, model.spec.fitted) - misfit) / change for f, change in zip(found, steps, strict=True)]
    return np.stack(columns, axis=1)


def step(place: np.ndarray, jacobian: np.ndarray, misfit: np.ndarray, damping: float) -> np.ndarray:
    """Return where a damped Gauss-Newton step from *place* leads, inside the box."""
    scale = np.linalg.norm(jacobian) ** 2 / len(place)
    if scale == 0:
        return place  # nothing moves the targets
    normal = jacobian.T @ jacobian + (RIDGE + damping) * scale * np.eye(len(place))
    moved: np.ndarray = np.clip(place - np.linalg.solve(normal, jacobian.T @ misfit), 0.0, 1.0)
    return moved


def not_identified(jacobian: np.ndarray, parameters: Sequence[Parameter]) -> list[str]:
    """Return which parameters, pairs and combinations of them the targets do not fix, measured by their ranges.

    Args:
        jacobian: see :class:`Fit`.
        parameters: one for each of its columns.
    """
    strength = np.linalg.norm(jacobian, axis=0)
    strongest = strength.max()
    out, idle = [], set()
    for parameter, own in zip(parameters, strength, strict=True):
        if own < NOT_IDENTIFIED * strongest or strongest == 0:
            idle.add(parameter.key)
            share = own / strongest if strongest else 0.0
            out.append(f"{parameter.key}: its full range hardly moves the targets ({share:.2f} of the strongest)")
    for (i, one), (j, other) in combinations(enumerate(parameters), 2):
        if one.key in idle or other.key in idle:
            continue
        cosine = float(jacobian[:, i] @ jacobian[:, j] / (strength[i] * strength[j]))
        if abs(cosine) >= ALIKE:
            way = "alike" if cosine > 0 else "oppositely"
            out.append(f"{one.key} and {other.key}: they move the targets {way} (cosine {cosine:+.3f})")
    return out + combinations_not_fixed(jacobian, parameters, idle)


def combinations_not_fixed(jacobian: np.ndarray, parameters: Sequence[Parameter], named_before: set[str]) -> list[str]:
    """Return directions along which the targets hardly move, but for those of parameters in *named_before*."""
    _, found, directions = np.linalg.svd(jacobian, full_matrices=True)
    strength = np.zeros(len(parameters))  # fewer targets than parameters leave directions that move nothing at all
    strength[: len(found)] = found
    out = []
    for own, direction in zip(strength, directions, strict=True):
        parts = sorted(zip(direction, parameters, strict=True), key=lambda part: -abs(part[0]))
        named = {parameter.key: f"{weight:+.2f} {parameter.key}" for weight, parameter in parts if abs(weight) > NAMED}
        if own < NOT_IDENTIFIED * strength[0] and not set(named) <= named_before:
            out.append(f"combination {' '.join(named.values())} ({own / strength[0]:.2f} of the strongest)")
    return out
