"""What stands above each figure of the report: which figure of the article it is, from which section, and what of."""

from __future__ import annotations

from dataclasses import dataclass

from simrl.plots.style import look_of


@dataclass(frozen=True)
class Caption:
    """Of one figure."""

    place: str
    """Part or section of the article."""
    number: int | None
    """Counted in the article's order, which has no numbers of its own; none for a figure it does not have."""
    words: str

    def __str__(self) -> str:
        figure = f"figure {self.number}" if self.number else "no figure of the article"
        return f"{self.place}, {figure}: {self.words}"


BARS = "throughput by staleness, and what is dropped"
CAPTIONS = {
    "timeline": Caption("Section 2", 1, "requests in flight over one run of verl drop, training phases shaded"),
    "lengths": Caption("Section 3", 2, "prompt and response lengths of the default load"),
    "control_table": Caption("Part II", 3, "where each mechanism controls, and what its knob bounds"),
    "throughput_verl_drop": Caption("Part II, verl (1)", 4, f"verl drop, {BARS}"),
    "throughput_verl_wait": Caption("Part II, verl (2)", 5, f"verl wait, {BARS}"),
    "slow_batches": Caption("Part II, verl (2)", 6, "the constructed load"),
    "verl_wait_slow_batches": Caption("Part II, verl (2)", 7, "verl wait on the constructed load, largest staleness"),
    "drop_against_wait": Caption("Part II, verl (3)", 8, "verl drop against wait at equal actual staleness"),
    "throughput_trl": Caption("Part II, TRL", 9, f"TRL, {BARS}"),
    "throughput_areal": Caption("Part II, AReaL", 10, f"AReaL, {BARS}"),
    "throughput_skyrl": Caption("Part II, SkyRL", 11, f"SkyRL, {BARS}"),
    "throughput_openrlhf": Caption("Part II, OpenRLHF", 12, f"OpenRLHF, {BARS}"),
    "throughput_slime": Caption("Part II, slime", 13, f"slime, {BARS}"),
    "throughput_roll": Caption("Part II, ROLL", 14, f"ROLL, {BARS}"),
    "throughput_prime_rl": Caption("Part II, prime-rl", 15, f"prime-rl, {BARS}"),
    "throughput_dressage": Caption("Part II, Dressage", 16, f"Dressage, {BARS}"),
    "throughput_nemo_windowed": Caption("Part II, NeMo-RL", 17, f"windowed, {BARS}"),
    "throughput_nemo_weight_fifo": Caption("Part II, NeMo-RL", 18, f"weight_fifo, {BARS}"),
    "throughput_nemo_ready_first": Caption("Part II, NeMo-RL", 19, f"ready_first, {BARS}"),
    "throughput_nemo_in_order": Caption("Part II, NeMo-RL", 20, f"in_order, {BARS}"),
    "batch_staleness": Caption("Section 5", 21, "staleness of each batch of AReaL at η = 1, what is over it hatched"),
    "preemption": Caption("Section 6", 22, "preemptions and re-prefill of AReaL and SkyRL against η"),
    "trl_against_verl": Caption("Section 6", 23, "TRL against verl drop at equal caps"),
    "ablation": Caption("Section 7", 24, "the ablation, L1, L2 and L3 added one by one"),
    "length_bias": Caption("Section 8", 25, "which lengths are dropped"),
    "under_cap": Caption("Section 9", 26, "best effective throughput under a staleness cap"),
    "under_cap_with_new": Caption("Beyond section 9", None, "the same with PSRL and the deadline rule"),
    "pareto": Caption("Beyond section 9", None, "throughput against actual staleness, all configurations"),
}
"""By figure, in the article's order."""


def caption_of(figure: str) -> str:
    """Return a figure's caption; a mechanism that the article does not have stands beyond its Part II."""
    mechanism = look_of(figure.removeprefix("throughput_")).label
    return str(CAPTIONS.get(figure) or Caption("Beyond Part II", None, f"{mechanism}, {BARS}"))
