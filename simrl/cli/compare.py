"""Two runs or two sweeps side by side, or the values of one swept key: metrics, differences, and what else differs.

Runs are paired by configuration and seed: the same loads on both sides, so that a few seeds show a difference. The
interval is the 95 % t interval of the mean difference B - A. With --by KEY --base VALUE the runs of a sweep, or of two
together, that have other values of the key are compared with those that have this one; --choose KEY picks the best
value of another key on the first half of the seeds and compares on the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simrl.cli.commands import answer
from simrl.cli.effect_report import effect_text
from simrl.config.schema import ConfigError
from simrl.model.metrics import BY_INSTANCE, SAME_AS, UNITS
from simrl.runs.status import is_ok
from simrl.runs.summary import read_summary
from simrl.sweep.effect import CHOSEN_BY, effects, halves
from simrl.sweep.folder import SweepFolder, read_folder
from simrl.sweep.paired import Difference, Pair, difference, pairing_keys, pairs
from simrl.sweep.seeds import METRICS, NO_SETTING
from simrl.sweep.table import read_rows, set_keys
from simrl.terminal import report
from simrl.text_table import number_text, text_table

SHOWN = ("effective_throughput", "waste", "mean_staleness", "max_staleness")
"""Metrics shown of sweeps unless others are asked for; of two runs all are."""
REMARKS = ("framework.upstream", "framework.upstream_knob", "framework.bounds", "framework.differs", "upstream_knob")
"""Keys that are there for the docs."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("a", metavar="A", type=Path, help="folder of a run or of a sweep")
    parser.add_argument("b", metavar="B", type=Path, nargs="?", help="folder of another; with --by it may be left out")
    parser.add_argument("--by", metavar="KEY", help="compare the values of this swept key, such as framework")
    parser.add_argument("--base", metavar="VALUE", help="the value of KEY that the others are compared with")
    parser.add_argument("--choose", action="append", metavar="KEY", help="pick its best value first (may be repeated)")
    parser.add_argument("--metric", action="append", metavar="NAME", help="show this (may be repeated)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(options: argparse.Namespace) -> int:
    """Print the comparison.

    Raises:
        ConfigError: if the two cannot be compared.
    """
    for metric in options.metric or ():
        if metric not in METRICS:
            raise ConfigError("--metric", metric, f"must be one of {', '.join(METRICS)}")
    folders = _folders(options)
    if options.by is not None:
        return _by(options, folders)
    for option in ("base", "choose"):
        if getattr(options, option) is not None:
            raise ConfigError(f"--{option}", getattr(options, option), "needs --by KEY, the key that is compared")
    if len(folders) < 2:
        raise ConfigError("B", None, "name a second run or sweep, or a key of A with --by KEY --base VALUE")
    a, b = folders
    if a.kind != b.kind:
        raise ConfigError("B", b.folder, f"is a {b.kind} and A a {a.kind}; name two runs or two sweeps")
    return _runs(options, a, b) if a.kind == "run" else _sweeps(options, a, b)


def _folders(options: argparse.Namespace) -> list[SweepFolder]:
    """Return what is to be compared, refusing what holds all sorts of runs and what is given twice."""
    folders = [read_folder(path, side) for side, path in (("A", options.a), ("B", options.b)) if path is not None]
    for side, folder in zip("AB", folders, strict=False):
        if folder.kind == "output":
            raise ConfigError(side, folder.folder, "is an output folder; name a run or a sweep in it")
    if len({frozenset(point.run_id for point in folder.points) for folder in folders}) < len(folders):
        hint = "has the same runs as A; name others, or compare the values of a key with --by KEY --base VALUE"
        raise ConfigError("B", options.b, hint)
    return folders


def _by(options: argparse.Namespace, folders: Sequence[SweepFolder]) -> int:
    """Compare the values of a swept key."""
    if options.base is None:
        raise ConfigError("--base", None, f"name the value of {options.by} that the others are compared with")
    keys = set_keys([point for folder in folders for point in folder.points])
    rows = [row for folder in folders for row in _rows(folder, keys)]
    chosen = [SAME_AS.get(key, key) for key in options.choose or ()]
    found = effects(rows, options.by, options.base, options.metric or SHOWN, chosen)
    seeds = halves(row["seed"] for row in rows) if chosen else None
    document = {
        "folders": [str(folder.folder) for folder in folders],
        "by": options.by,
        "base": options.base,
        "chosen": chosen,
        "seeds": None if seeds is None else dict(zip(("choosing", "judging"), seeds, strict=True)),
        "effects": [effect.row() for effect in found],
    }
    text = effect_text(found)
    if seeds is not None:
        choosing, judging = (", ".join(map(str, half)) for half in seeds)
        text += f"\n{', '.join(chosen)} chosen on seeds {choosing} for the largest {CHOSEN_BY}, judged on {judging}"
    answer(options, document, text)
    return 0


def full_row(folder: SweepFolder, run_id: str) -> dict[str, Any]:
    """Return a run's row, and the measured costs it was given, which no column holds.

    Raises:
        ConfigError: if the run is missing or incomplete.
    """
    run = folder.runs / run_id
    if not is_ok(run):
        raise ConfigError("run", run, "is incomplete; see simrl status")
    row = read_summary(run)
    given = next(point.overrides for point in folder.points if point.run_id == run_id)
    return {**row, **dict(text.split("=", 1) for text in given if text.startswith("hardware.measured") and "=" in text)}


def differing(a: dict[str, Any], b: dict[str, Any], but: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the configuration keys in which two rows differ, with both values; None where a key does not exist."""
    hidden = {*METRICS, *BY_INSTANCE, "run_id", *REMARKS, *but}
    keys = [key for key in dict.fromkeys((*a, *b)) if key not in hidden and a.get(key) != b.get(key)]
    keys = [key for key in keys if SAME_AS.get(key) not in keys]
    return [{"key": key, "a": a.get(key), "b": b.get(key)} for key in keys]


def _runs(options: argparse.Namespace, a: SweepFolder, b: SweepFolder) -> int:
    one, other = full_row(a, a.points[0].run_id), full_row(b, b.points[0].run_id)
    keys = differing(one, other)
    shown = options.metric or METRICS
    found = [(metric, difference(Pair((), (one,), (other,)), metric)) for metric in shown]
    metrics = [(metric, change) for metric, change in found if change is not None]
    document = {
        "a": one["run_id"],
        "b": other["run_id"],
        "keys": keys,
        "metrics": [{"metric": metric, "unit": UNITS[metric], **_values(change)} for metric, change in metrics],
    }
    body = [
        [
            metric,
            number_text(change.a),
            number_text(change.b),
            number_text(change.difference),
            percent_text(change.relative),
            UNITS[metric],
        ]
        for metric, change in metrics
    ]
    lines = [f"A: {one['run_id']}", f"B: {other['run_id']}", "", _keys_text(keys), ""]
    lines.append(text_table(["metric", "A", "B", "B - A", "B - A, %", "unit"], body))
    answer(options, document, "\n".join(lines))
    return 0


def _sweeps(options: argparse.Namespace, a: SweepFolder, b: SweepFolder) -> int:
    keys = list(dict.fromkeys((*set_keys(a.points), *set_keys(b.points))))
    rows_a, rows_b = _rows(a, keys), _rows(b, keys)
    columns = {key for rows in (rows_a, rows_b) for row in rows for key in row}
    names = dict.fromkeys(SAME_AS.get(key, key) for key in keys)
    pairing = pairing_keys(rows_a, rows_b, [name for name in names if name in columns and name not in NO_SETTING])
    try:
        found = pairs(rows_a, rows_b, pairing)
    except ValueError as error:
        raise ConfigError("A, B", f"{a.folder}, {b.folder}", f"cannot be paired: {error}") from error
    if not found:
        by = f" by {', '.join([*pairing, 'seed'])}"
        raise ConfigError("A, B", f"{a.folder}, {b.folder}", f"have no run in common{by}: there is nothing to compare")
    exemplar = found[0].a[0]["run_id"], found[0].b[0]["run_id"]
    constant = differing(full_row(a, exemplar[0]), full_row(b, exemplar[1]), (*pairing, "seed"))
    document = {
        "a": str(a.folder),
        "b": str(b.folder),
        "keys": constant,
        "paired_by": pairing,
        "configurations": [
            {
                "settings": dict(zip(pairing, pair.settings, strict=True)),
                "metrics": {
                    metric: _values(change)
                    for metric in options.metric or METRICS
                    if (change := difference(pair, metric)) is not None
                },
            }
            for pair in found
        ],
    }
    answer(options, document, _sweeps_text(a, b, constant, pairing, found, options.metric or SHOWN))
    return 0


def _rows(sweep: SweepFolder, keys: Sequence[str]) -> list[dict[str, Any]]:
    table = read_rows([sweep], keys)
    if table is None:
        raise ConfigError("sweep", sweep.folder, "has no finished run; see simrl status")
    if len(table) < len(sweep.points):
        report(
            f"{sweep.folder}: {len(sweep.points) - len(table)} of {len(sweep.points)} runs are missing or incomplete"
        )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _values(change: Difference) -> dict[str, Any]:
    return {
        "n": change.n,
        "a": change.a,
        "b": change.b,
        "difference": change.difference,
        "ci95": change.ci95,
        "relative": change.relative,
    }


def percent_text(share: float) -> str:
    """Return a share as a signed percentage."""
    return "-" if share != share else f"{100 * share:+.1f} %"  # noqa: PLR0124 - NaN


def _keys_text(keys: Sequence[dict[str, Any]]) -> str:
    if not keys:
        return "no configuration key differs"
    return text_table(["key", "A", "B"], [[key["key"], _shown(key["a"]), _shown(key["b"])] for key in keys])


def _shown(value: Any) -> str:
    return "-" if value is None else str(value)


def _sweeps_text(
    a: SweepFolder,
    b: SweepFolder,
    constant: Sequence[dict[str, Any]],
    pairing: Sequence[str],
    found: Sequence[Pair],
    metrics: Sequence[str],
) -> str:
    body = []
    for metric in metrics:
        for pair in found:
            change = difference(pair, metric)
            if change is not None:
                body.append(
                    [
                        metric,
                        *map(_shown, pair.settings),
                        str(change.n),
                        number_text(change.a),
                        number_text(change.b),
                        number_text(change.difference),
                        number_text(change.ci95, 3),
                        percent_text(change.relative),
                    ]
                )
    header = ["metric", *pairing, "seeds", "A", "B", "B - A", "± 95 %", "B - A, %"]
    lines = [f"A: {a.folder}", f"B: {b.folder}", "", _keys_text(constant), "", text_table(header, body), ""]
    lines.append(f"{len(found)} configurations paired over their common seeds")
    return "\n".join(lines)
