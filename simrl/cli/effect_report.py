"""What ``simrl compare --by`` prints: each value of a key against the base value."""

from __future__ import annotations

from collections.abc import Sequence

from simrl.sweep.effect import Effect
from simrl.sweep.paired import value_text
from simrl.text_table import number_text, text_table


def effect_text(effects: Sequence[Effect]) -> str:
    """Return the table of effects; what the base has is named beside, where keys were chosen."""
    names, chosen = list(effects[0].settings), effects[0].chosen
    body = [
        [
            effect.metric,
            *(value_text(value) for value in effect.settings.values()),
            *(value_text(effect.base[name]) for name in chosen),
            str(effect.change.n),
            number_text(effect.change.a),
            number_text(effect.change.b),
            number_text(effect.change.difference),
            number_text(effect.change.ci95, 3),
            number_text(effect.change.ratio),
            number_text(effect.change.ratio_ci95, 2),
        ]
        for effect in effects
    ]
    header = [
        *("metric", *names, *(f"{name} of base" for name in chosen), "seeds", "base", "mean"),
        *("difference", "± 95 %", "ratio", "± 95 %"),
    ]
    same = {name: {value_text(effect.base[name]) for effect in effects} for name in names if name not in chosen}
    constant = ", ".join(f"{name}={min(values)}" for name, values in same.items() if len(values) == 1)
    return f"{text_table(header, body)}\n\nbase: {constant}; each difference is of runs with one seed, the same load"
