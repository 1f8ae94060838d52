"""``simrl fit``: known coefficients are found again, with honest errors; a simulated run predicts itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import simrl
from simrl.cli import commands
from simrl.cli.exit_code import exit_code
from simrl.cli.export import export
from simrl.cli.fit import fit_import
from simrl.config.schema import SimulationConfig
from simrl.model.cost.iteration_table import iteration_table
from simrl.model.cost.training import step_time
from simrl.own_run.engine_fit import fit_engine
from simrl.own_run.engine_windows import windows_of
from simrl.own_run.export.run_columns import step_rows
from simrl.own_run.importing import import_files
from simrl.own_run.length_law import fit_lengths
from simrl.own_run.nonnegative import non_negative, trimmed
from simrl.own_run.own_fit import IDENTIFIED, ROUGH, OwnFit
from simrl.own_run.stored_import import read_import

RNG = np.random.default_rng
RUN = ("framework=verl_wait", "versions=8", "trainer.weight_sync_s=3")
LAYOUT = ("hardware=h20", "model=qwen3_8b", "trainer=megatron")
IDENTIFIED_WITHIN, STEP_WITHIN = 0.03, 0.02


def truths(config: SimulationConfig) -> dict[str, float]:
    """Return what a fit of a default run should find."""
    costs = config.hardware.measured["qwen3_8b"]
    names = ("decode_base_s", "decode_per_request_s", "decode_per_context_token_s", "decode_floor_s")
    return {f"rollout.costs.{name}": getattr(costs, name) for name in names} | {
        "rollout.costs.prefill_per_token_s": costs.prefill_per_token_s or 0.0,
        "hardware.training_efficiency": config.hardware.training_efficiency,
        "rollout.kv_blocks": 31262,
        "trainer.weight_sync_s": 3.0,
    }


def step_times(overrides: list[str], config_dir: Path | None = None) -> np.ndarray:
    """Return the step times of a simulation, s."""
    result = simrl.simulate(overrides, config_dir=config_dir)
    assert result._records is not None
    return np.array([columns["step_s"] for _, columns in step_rows(result.config, result._records)])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the import of one simulated run, exported as verl or tidy."""
    folder = tmp_path_factory.mktemp("loop")
    config = simrl.load_config(RUN)

    def imported(form: str) -> Path:
        if not (folder / form).exists():
            export(config, form, folder / form)
        if form == "tidy":
            return folder / form
        if not (folder / "imported").exists():
            import_files("verl", [folder / form], folder / "imported")
        return folder / "imported"

    return imported


@pytest.mark.parametrize("form", ["verl", "tidy"])
def test_a_simulated_run_predicts_itself(form: str, exported: Callable[[str], Path], tmp_path: Path) -> None:
    """Exported, imported and fitted, every identified coefficient is within 3 % and the mean step within 2 %."""
    given = [*LAYOUT, *(["framework=verl_wait"] if form == "tidy" else [])]
    fitted, _ = fit_import(exported(form), given, tmp_path / "fit", "mine")
    known = truths(simrl.load_config(RUN))
    sure = [one for one in fitted.coefficients if one.standing == IDENTIFIED and one.key in known]
    assert {one.key for one in sure} >= {
        "rollout.costs.decode_base_s",
        "rollout.costs.decode_per_request_s",
        "rollout.costs.decode_per_context_token_s",
        "rollout.kv_blocks",
        "hardware.training_efficiency",
    }
    for one in sure:
        assert one.value == pytest.approx(known[one.key], rel=IDENTIFIED_WITHIN), one.key
    predicted = step_times(
        ["experiment=mine", "workload=mine_trace", "framework=mine", "versions=8"], tmp_path / "fit" / "options"
    )
    measured = step_times(list(RUN))
    # beyond the last trained group the trace starts over: a verl dump lacks the groups that were under way at the end
    whole = slice(None) if form == "tidy" else slice(None, -1)
    assert predicted[whole].mean() == pytest.approx(measured[whole].mean(), rel=STEP_WITHIN)
    assert np.abs(predicted[:5] / measured[:5] - 1).max() < STEP_WITHIN


TIGHT = ("framework=skyrl", "versions=5", "rollout.kv_blocks=12000")
OTHERS = (("framework=areal", "versions=5"), TIGHT, ("framework=trl", "versions=6", "workload=math_reasoning_8k"))


@pytest.mark.parametrize("given", OTHERS)
def test_whatever_is_called_identified_is_right(given: tuple[str, ...], tmp_path: Path) -> None:
    """Under other frameworks, a full KV pool and short responses, what is identified is within 3 %, and some is."""
    export(simrl.load_config(given), "tidy", tmp_path / "run")
    fitted, _ = fit_import(tmp_path / "run", [*LAYOUT, given[0]], tmp_path / "fit", "mine")
    known = truths(simrl.load_config(given))
    sure = [one for one in fitted.coefficients if one.standing == IDENTIFIED and one.key in known]
    assert len(sure) >= 2
    for one in sure:
        if one.key != "rollout.kv_blocks":
            assert one.value == pytest.approx(known[one.key], rel=IDENTIFIED_WITHIN), one.key


def test_an_always_full_pool_does_not_tell_base_from_context(tmp_path: Path) -> None:
    """Contexts hardly change there: neither is called identified, and the report says so."""
    export(simrl.load_config(TIGHT), "tidy", tmp_path / "run")
    fitted, report = fit_import(tmp_path / "run", [*LAYOUT, TIGHT[0]], tmp_path / "fit", "mine")
    for name in ("decode_base_s", "decode_per_context_token_s"):
        assert fitted.coefficient(f"rollout.costs.{name}").standing == ROUGH
    assert "base, request and context are not told apart" in report


def test_cancelled_trajectories_make_lengths_rough(tmp_path: Path) -> None:
    """Where many were cancelled, those that are left are shorter than all: no length is called identified."""
    export(simrl.load_config(["framework=roll", "versions=4"]), "tidy", tmp_path / "run")
    fitted, report = fit_import(tmp_path / "run", [*LAYOUT, "framework=roll"], tmp_path / "fit", "mine")
    assert fitted.lost > 0.02
    assert all(one.standing == ROUGH for one in fitted.coefficients if one.key.startswith("workload."))
    assert "the true tail is longer" in report


def test_the_options_carry_their_label_and_are_taken_at_once(exported: Callable[[str], Path], tmp_path: Path) -> None:
    """hardware, workload, framework and experiment are options; the engine's costs say they are the user's."""
    _, report = fit_import(exported("verl"), LAYOUT, tmp_path / "fit", "mine")
    options = tmp_path / "fit" / "options"
    config = simrl.load_config(
        ["hardware=mine", "workload=mine", "framework=mine", "groups_per_batch=4"], config_dir=options
    )
    table = iteration_table(config.hardware, config.model, config.rollout)
    assert (table.provenance, table.prefill_provenance) == ("measured", "measured")
    assert table.source.startswith("measured (yours): ")
    assert config.workload.law == "lognormal"
    assert config.framework.eta == 2
    chosen = simrl.load_config(["experiment=mine"], config_dir=options)
    assert (chosen.hardware.name, chosen.rollout.kv_blocks, chosen.trainer.weight_sync_s) == ("mine", 31262, 3.0)
    assert "measured (yours)" in report
    for heading in ("Usable for:", "Not usable for:", "What the data cannot tell"):
        assert heading in report


def test_prefill_from_windows_of_seconds_is_never_called_identified(
    exported: Callable[[str], Path], tmp_path: Path
) -> None:
    """They do not show how prefill and decode shared iterations; the report says so and what to log."""
    fitted, report = fit_import(exported("verl"), LAYOUT, tmp_path / "fit", "mine")
    assert fitted.coefficient("rollout.costs.prefill_per_token_s").standing == ROUGH
    assert "--enable-logging-iteration-details" in report


BASE, REQUEST, CONTEXT, PREFILL = 0.006, 9e-5, 7e-8, 6e-5
POOL_TOKENS = 600_000


def iteration_log(path: Path, requests: range, noise: float, mixed: bool) -> None:
    """Write vLLM's iteration lines of an engine with the coefficients above; every fifth prefills if *mixed*."""
    rng = RNG(3)
    lines = [f"INFO 01-01 00:00:00 [x.py:1] GPU KV cache size: {POOL_TOKENS:,} tokens\n"]
    for number in range(4000):
        n = requests[number // 40 % len(requests)]
        context = n * (1500 + 3000 * (number // 40 % 7))
        prefilled = 2000 * (mixed and number % 5 == 0)
        seconds = max(BASE + REQUEST * n, PREFILL * prefilled) + CONTEXT * context
        seconds *= 1 + noise * rng.standard_normal()
        usage = 100 * (context + n * 7.5) / POOL_TOKENS
        lines.append(
            f"INFO 01-01 00:00:00 [x.py:1] Engine 000: Iteration({number}): {int(prefilled > 0)} context requests, "
            f"{prefilled} context tokens, {n} generation requests, {n} generation tokens, iteration elapsed time: "
            f"{1e3 * seconds:.4f} ms, GPU KV cache usage: {usage:.4f}%\n"
        )
    path.write_text("".join(lines))


def fitted_engine(path: Path, tmp_path: Path) -> OwnFit:
    """Return the fit of an engine's log alone."""
    import_files("vllm", [path], tmp_path / "imported")
    overrides = ["hardware=h20", "model=qwen3_8b", "hardware.measured.qwen3_8b.prefill_per_token_context_s=0"]
    return fit_import(tmp_path / "imported", overrides, tmp_path / "fit", "mine")[0]


def test_iteration_lines_give_every_coefficient(tmp_path: Path) -> None:
    """With vLLM's iteration details decode and prefill come out within 1 % and are called identified."""
    iteration_log(tmp_path / "i.log", range(20, 120, 7), noise=0.01, mixed=True)
    fitted = fitted_engine(tmp_path / "i.log", tmp_path)
    known = {"decode_base_s": BASE, "decode_per_request_s": REQUEST, "decode_per_context_token_s": CONTEXT}
    for name, value in {**known, "prefill_per_token_s": PREFILL}.items():
        one = fitted.coefficient(f"rollout.costs.{name}")
        assert one.value == pytest.approx(value, rel=0.01), name
        assert abs(one.value - value) < 4 * one.error, name
        assert one.standing == IDENTIFIED, name


def test_one_batch_size_does_not_tell_base_from_requests(tmp_path: Path) -> None:
    """Where every window has the same number of requests, neither base nor per request is called identified."""
    iteration_log(tmp_path / "i.log", range(64, 65), noise=0.01, mixed=False)
    fitted = fitted_engine(tmp_path / "i.log", tmp_path)
    for name in ("decode_base_s", "decode_per_request_s"):
        assert fitted.coefficient(f"rollout.costs.{name}").standing == ROUGH
    assert any("64 to 64 requests" in note for note in fitted.notes)
    costs = fitted.costs
    assert costs["decode_base_s"] + 64 * costs["decode_per_request_s"] == pytest.approx(BASE + 64 * REQUEST, rel=0.01)


def test_windows_in_which_the_engine_stood_still_are_left_out(exported: Callable[[str], Path]) -> None:
    """Windows that lack time do not move the coefficients."""
    config = simrl.load_config(RUN)
    known = iteration_table(config.hardware, config.model, config.rollout)
    run = read_import(exported("tidy"))
    before = fit_engine(windows_of(run), known, 8192)
    run.engine["gen_tok_s"][::4] *= 0.6  # the engine paused in every fourth
    after = fit_engine(windows_of(run), known, 8192)
    assert before is not None
    assert after is not None
    assert after.left_out > before.left_out + len(run.engine["t_s"]) // 8
    for name in ("decode_base_s", "decode_per_request_s", "decode_per_context_token_s"):
        assert after.values[name] == pytest.approx(before.values[name], rel=0.03), name


def test_non_negative_least_squares_is_exact() -> None:
    """The answer is at least as good as a projected gradient's, never negative, and zero where a sign would turn."""
    rng = RNG(5)
    for _ in range(20):
        rows, wanted = rng.random((30, 4)), rng.standard_normal(30)
        found = non_negative(rows, wanted)
        other = np.zeros(4)
        for _ in range(4000):
            other = np.maximum(0.0, other - rows.T @ (rows @ other - wanted) / np.linalg.norm(rows) ** 2)
        assert (found >= 0).all()
        assert np.square(rows @ found - wanted).sum() <= np.square(rows @ other - wanted).sum() + 1e-9
    assert non_negative(np.ones((5, 1)), -np.ones(5)).tolist() == [0.0]


def test_standard_errors_are_honest() -> None:
    """Nineteen of twenty times, about, the truth lies within two standard errors."""
    rng, inside = RNG(11), 0
    for _ in range(200):
        rows = np.stack([np.ones(300), rng.uniform(1, 5, 300)], axis=1)
        wanted = rows @ np.array([2.0, 3.0]) + 0.3 * rng.standard_normal(300)
        solution = trimmed(rows, wanted, np.ones(300))
        inside += abs(solution.values[1] - 3.0) < 2 * solution.error(1)
    assert 175 <= inside <= 199


def lengths_of(groups: int, members: int, between: float, within: float, cap: float) -> dict[str, object]:
    """Return made-up trajectories whose log lengths vary between and within groups."""
    rng = RNG(2)
    logs = 8.5 + between * rng.standard_normal((groups, 1)) + within * rng.standard_normal((groups, members))
    count = groups * members
    return {
        "group": [f"g{number // members}" for number in range(count)],
        "status": ["trained"] * count,
        "prompt_tokens": np.full(count, 150.0),
        "response_tokens": np.minimum(np.rint(np.exp(logs.ravel())), cap),
    }


@pytest.mark.parametrize("cap", [1e9, 12_000.0, 6_000.0])
def test_spreads_between_and_within_are_found_under_a_cap(cap: float) -> None:
    """Even where the cap cuts off a third of the responses, both spreads and the mean are those of the law."""
    rows = lengths_of(600, 8, between=0.6, within=0.35, cap=cap)
    law = fit_lengths(rows)  # type: ignore[arg-type]
    assert law is not None
    assert law.grouped
    assert law.sigma_between == pytest.approx(0.6, abs=max(0.04, 3 * law.between_error))
    assert law.sigma_within == pytest.approx(0.35, abs=0.02)
    assert law.mean == pytest.approx(np.mean(rows["response_tokens"]), rel=0.02)  # type: ignore[arg-type]


def test_without_groups_the_spread_is_one() -> None:
    """Independent lengths have no within, and the law says that the groups are not known."""
    rows = lengths_of(600, 1, between=0.6, within=0.35, cap=1e9)
    rows["group"] = [None] * 600
    law = fit_lengths(rows)  # type: ignore[arg-type]
    assert law is not None
    assert not law.grouped
    assert law.sigma_between == pytest.approx(np.hypot(0.6, 0.35), rel=0.1)


def test_the_scale_of_passes_is_found(exported: Callable[[str], Path]) -> None:
    """With trainer.cost=passes the constant is pass_scale, whatever of a step is not computing."""
    overrides = [*LAYOUT[:2], "trainer=megatron_lm", "trainer.data_parallel=1", "framework=verl_wait"]
    run = read_import(exported("tidy"))
    config = simrl.load_config([*overrides, "trainer.pass_scale=1.3"])
    lengths = {
        step: (run.trajectories["prompt_tokens"] + run.trajectories["response_tokens"])[
            run.trajectories["step"] == step
        ].astype(np.int64)
        for step in run.steps["step"]
    }
    times = [step_time(config.hardware, config.model, config.trainer, lengths[step]) for step in run.steps["step"]]
    run.steps["update_s"][:] = [time.update_s for time in times]
    from simrl.own_run.trainer_fit import fit_trainer

    fitted = fit_trainer(run, simrl.load_config(overrides))
    assert fitted is not None
    assert (fitted.key, fitted.value) == ("trainer.pass_scale", pytest.approx(1.3, rel=1e-6))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{data}/nothing"], "is not what simrl import wrote"),
        (["{imported}", "--name", "My-own"], "must be of lower-case letters"),
        (["{imported}", "hardware=h2000"], "hardware=h2000"),
        (["{imported}", "--output", "{imported}"], "no fit wrote it"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    says: str,
    exported: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A folder that is no import, a bad name, a bad key and a folder in the way are one line and exit code 2."""
    output = [] if "--output" in words else ["--output", str(tmp_path / "fit")]
    given = [word.format(data=tmp_path, imported=exported("tidy")) for word in words]
    assert exit_code(lambda: commands.main(["fit", *given, *output])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "fit").exists()
