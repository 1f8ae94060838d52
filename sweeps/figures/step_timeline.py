"""Requests in flight and KV cache use over one run, with the trainer's phases behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from simrl.plots import layout, style
from sweeps.figures.selection import point_text, setting_text, some

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

WIDTH_IN = 9.5
IN_FLIGHT_IN = 2.4
KV_IN = 1.3
SIMULATED = "#08519c"
MEASURED = "#d9601a"
UPDATE = "#cfd4dc"


def step_timeline(tables: ArticleTables, measured: Path | None = None, run_id: str | None = None) -> Figure:
    """Draw what was in flight over one run.

    Args:
        tables: The article's tables.
        measured: A CSV of a real run to lay over it: columns time_s, in_flight.
        run_id: Which run; by default verl_drop at warmup 1 and eta 1: its largest batch, its lowest seed.

    Returns:
        Requests in flight above, KV cache use below.

    Raises:
        NothingToDrawError: There is no such run.
    """
    rows = tables.summary
    wanted = (rows["framework"] == "verl_drop") & (rows["eta"] == 1) & (rows["warmup"] == 1)
    rows = some(rows[rows["run_id"] == run_id if run_id else wanted], run_id or "verl_drop at warmup 1, eta 1")
    run = rows.sort_values(["groups_per_batch", "seed"], ascending=[False, True]).iloc[0]
    samples = totals(tables.records(run["run_id"], "timeline"))
    batches = tables.records(run["run_id"], "batches").drop_duplicates("version")
    real = None if measured is None else pd.read_csv(measured).sort_values("time_s")
    with style.house_style():
        return _draw(run, samples, batches, real)


def totals(timeline: pd.DataFrame) -> pd.DataFrame:
    """Add up the instances of a timeline.

    Args:
        timeline: A run's timeline.parquet; instances need not be sampled at the same times.

    Returns:
        time_s, in_flight (requests), kv_mean, kv_least and kv_most (share of the blocks, over instances).
    """
    last = timeline.drop_duplicates(["time_s", "instance"], keep="last")
    last = last.assign(kv=last["kv_blocks_used"] / last["kv_blocks"])
    wide = (
        last.pivot_table(index="time_s", columns="instance", values=["in_flight", "kv"]).sort_index().ffill().fillna(0)
    )
    kv = wide["kv"]
    return pd.DataFrame(
        {
            "time_s": wide.index,
            "in_flight": wide["in_flight"].sum(axis=1).to_numpy(),
            "kv_mean": kv.mean(axis=1).to_numpy(),
            "kv_least": kv.min(axis=1).to_numpy(),
            "kv_most": kv.max(axis=1).to_numpy(),
        }
    )


def _draw(run: pd.Series[Any], samples: pd.DataFrame, batches: pd.DataFrame, real: pd.DataFrame | None) -> Figure:
    """Draw; runs inside the theme."""
    figure = layout.sheet()
    above = layout.panel(figure, WIDTH_IN, IN_FLIGHT_IN)
    below = layout.panel(figure, WIDTH_IN, KV_IN, sharex=above)
    for axis in (above, below):
        _shade(axis, batches)
    step: dict[str, Any] = {"drawstyle": "steps-post", "linewidth": 1.5, "color": SIMULATED, "zorder": 4}
    above.plot(samples["time_s"], samples["in_flight"], **step)
    top = float(samples["in_flight"].max())
    if real is not None:
        look: dict[str, Any] = {"linewidth": 1.5, "color": MEASURED, "linestyle": (0, (4, 1.5)), "zorder": 5}
        above.plot(real["time_s"], real["in_flight"], **look)
        top = max(top, float(real["in_flight"].max()))
    several = bool((samples["kv_most"] > samples["kv_least"]).any())
    if several:
        band: dict[str, Any] = {"step": "post", "facecolor": SIMULATED, "alpha": 0.3, "linewidth": 0, "zorder": 3}
        below.fill_between(samples["time_s"], 100 * samples["kv_least"], 100 * samples["kv_most"], **band)
    below.plot(samples["time_s"], 100 * samples["kv_mean"], **step)

    end = max(
        float(run["duration_s"]), float(samples["time_s"].max()), *([] if real is None else [real["time_s"].max()])
    )
    above.set(xlim=(0, end), ylim=(0, top * 1.08), ylabel="requests in flight")
    above.tick_params(labelbottom=False)
    below.set(ylim=(0, 105), ylabel="KV cache used (%)", xlabel="time (s)")
    below.set_yticks([0, 25, 50, 75, 100])
    _number_steps(above, batches, end)

    handles: list[Any] = [Line2D([], [], color=SIMULATED, linewidth=1.5, label="simulated, all instances")]
    if real is not None:
        handles.append(Line2D([], [], color=MEASURED, linewidth=1.5, linestyle=(0, (4, 1.5)), label="measured"))
    if several:
        handles.append(Patch(facecolor=SIMULATED, alpha=0.3, label="KV cache: least to most used instance"))
    hatched: dict[str, Any] = {"hatch": style.HATCH_LOGPROB, "edgecolor": style.MUTED, "linewidth": 0.4}
    handles.append(Patch(facecolor="white", **hatched, label="training: log-probs computed again"))
    handles.append(Patch(facecolor=UPDATE, label="training: update"))
    title = f"Requests in flight and KV cache use: {point_text(run)}"
    n_groups, n_members = style.number(run["groups_per_batch"]), style.number(run["group_size"])
    subtitle = f"{setting_text(run.to_frame().T)} · {n_groups} groups of {n_members} a step"
    subtitle += f" · seed {run['seed']} · {style.number(run['duration_s'])} s simulated"
    if real is not None:
        off = end_of(samples) / end_of(real) - 1
        subtitle += f"\nlast request, simulated against measured: {off:+.1%}"
    layout.lay_out(figure, [[above], [below]], title, subtitle, [(handles, None)])
    return figure


def end_of(samples: pd.DataFrame) -> float:
    """Return the last time at which anything was in flight, s."""
    return float(samples.loc[samples["in_flight"] > 0, "time_s"].max())


def _shade(axis: Axes, batches: pd.DataFrame) -> None:
    """Put the trainer's phases behind a panel."""
    start = batches["start_s"].to_numpy()
    update = start + batches["logprob_s"].to_numpy()
    end = update + batches["update_s"].to_numpy()
    hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": style.MUTED, "hatch": style.HATCH_LOGPROB}
    for k in range(len(start)):
        axis.axvspan(start[k], update[k], linewidth=0.4, zorder=0.5, **hatched)
        axis.axvspan(update[k], end[k], facecolor=UPDATE, linewidth=0, zorder=0.5)


def _number_steps(axis: Axes, batches: pd.DataFrame, end: float) -> None:
    """Write the number of the training step above its shade, where there is room."""
    room = end / WIDTH_IN * 0.3
    last = -np.inf
    place: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
    for number, (_, batch) in enumerate(batches.sort_values("version").iterrows(), start=1):
        middle = batch["start_s"] + (batch["logprob_s"] + batch["update_s"]) / 2
        if middle - last >= room:
            words = "step 1" if number == 1 else str(number)
            axis.annotate(words, (middle, axis.get_ylim()[1]), (0, 2), color=style.MUTED, **place)
            last = middle
