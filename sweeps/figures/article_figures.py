"""All figures of the article, by the name of their file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sweeps.captions import CAPTIONS
from sweeps.figures.ablation import ablation
from sweeps.figures.batch_staleness import batch_staleness
from sweeps.figures.control_table import control_table
from sweeps.figures.drop_against_wait import drop_against_wait
from sweeps.figures.length_bias import length_bias
from sweeps.figures.load_lengths import load_lengths, slow_batches
from sweeps.figures.mechanisms import MECHANISM_FIGURES
from sweeps.figures.pareto import pareto
from sweeps.figures.preemption import preemption
from sweeps.figures.staleness_bounds import verl_wait_slow_batches
from sweeps.figures.step_timeline import step_timeline
from sweeps.figures.trl_against_verl import trl_against_verl
from sweeps.figures.under_cap import under_cap, under_cap_with_new

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from sweeps.figures.article_tables import ArticleTables

DRAWN: dict[str, Callable[[ArticleTables], Figure]] = {
    "timeline": step_timeline,
    "lengths": load_lengths,
    "control_table": control_table,
    **MECHANISM_FIGURES,
    "slow_batches": slow_batches,
    "verl_wait_slow_batches": verl_wait_slow_batches,
    "drop_against_wait": drop_against_wait,
    "batch_staleness": batch_staleness,
    "preemption": preemption,
    "trl_against_verl": trl_against_verl,
    "ablation": ablation,
    "length_bias": length_bias,
    "under_cap": under_cap,
    "under_cap_with_new": under_cap_with_new,
    "pareto": pareto,
}
FIGURES = {name: DRAWN[name] for name in (*CAPTIONS, *sorted(DRAWN.keys() - CAPTIONS.keys()))}
"""In the article's order, those it does not have behind. A figure whose runs the tables lack raises
:class:`~sweeps.figures.selection.NothingToDrawError`."""
