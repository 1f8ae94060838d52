# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Reading a sweep
#
# Run a small sweep from the command line, read what it leaves, and recompute its main figures by hand: effective
# throughput, waste and staleness. Every check is an `assert`: if the notebook ran, the figures agree.

# %%
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from IPython.display import Image

from simrl.stats import t_interval

SMALL = os.environ.get("SIMRL_SMALL") == "1"  # the test suite's size: seconds, and figures that mean nothing
OUTPUT = Path(os.environ.get("SIMRL_OUTPUT", "../outputs"))  # a notebook's working directory is its own folder
SWEEP = OUTPUT / "sweeps" / "reading_a_sweep"

# %% [markdown]
# ## Run it
#
# Three mechanisms, two values of eta, three loads. A seed is a load: all mechanisms of one seed get the same prompts
# and lengths. Runs that are there already are not computed again.

# %%
grid = ["framework=areal,verl_drop,roll", "framework.eta=1,2", "seed=0,1,2"]
if SMALL:
    grid = ["framework=areal,roll", "framework.eta=1,2", "seed=0,1", "hydra.launcher.n_jobs=1"]
    grid += ["versions=2", "groups_per_batch=2", "group_size=2", "workload.mean_response_tokens=1000"]
command = [sys.executable, "-m", "simrl", "-m", *grid, f"output_dir={OUTPUT}", f"hydra.sweep.dir={SWEEP}"]
done = subprocess.run(command, capture_output=True, text=True, check=False)
assert done.returncode == 0, done.stderr
print(done.stderr.splitlines()[-1].partition(":")[2].partition(":")[0].strip())

# %% [markdown]
# ## The sweep's table
#
# `sweep.parquet` has one row a run. The unit of each column stands in its field's metadata, so a script need not
# guess.


# %%
def units(path: Path) -> pd.Series:
    """Return the unit of each column of a Parquet file."""
    schema = pq.read_schema(path)
    return pd.Series({field.name: (field.metadata or {}).get(b"unit", b"").decode() for field in schema}, name="unit")


sweep = pd.read_parquet(SWEEP / "sweep.parquet")
shown = ["effective_throughput", "total_throughput", "waste", "trained_tokens", "max_staleness", "mean_staleness"]
first = sweep.loc[0, shown].rename(sweep.loc[0, "run_id"])
pd.concat([units(SWEEP / "sweep.parquet")[shown], first], axis=1)

# %% [markdown]
# ## Group over seeds
#
# One load moves a throughput by several percent, so a single run is no comparison. Take the mean over seeds with a 95
# % t interval, and of the staleness the largest. `strict_bound` is what the mechanism promises; empty: it promises
# nothing.

# %%
by = sweep.groupby(["framework", "eta"])
table = by.agg(
    effective_throughput=("effective_throughput", "mean"),
    ci95=("effective_throughput", lambda values: t_interval(values.tolist())),
    waste=("waste", "mean"),
    max_staleness=("max_staleness", "max"),
    strict_bound=("strict_bound", "first"),
    loads=("seed", "nunique"),
)
table.round({"effective_throughput": 0, "ci95": 0, "waste": 3})

# %% [markdown]
# The sweep drew this figure of the same rows. Solid: trained tokens by staleness. Hatched: thrown away.

# %%
Image(SWEEP / "throughput.png", width=900)

# %% [markdown]
# ## A run's tables
#
# A run's folder holds its row (`summary.parquet`), the four tables below and a `status.json`. Here: ROLL at eta 2,
# which cancels and drops.

# %%
run_id = sweep.set_index(["framework", "eta", "seed"]).loc[("roll", 2, 0), "run_id"]
folder = OUTPUT / "runs" / run_id
assert json.loads((folder / "status.json").read_text())["state"] == "ok"
print(run_id)
pd.set_option("display.max_colwidth", 200)
pd.DataFrame(
    {
        name: {"rows": len(pd.read_parquet(folder / name)), "columns": ", ".join(units(folder / name).index[:11])}
        for name in ("batches.parquet", "trajectories.parquet", "segments.parquet", "timeline.parquet")
    }
).T

# %%
units(folder / "trajectories.parquet").to_frame()

# %% [markdown]
# ## Throughput and waste by hand
#
# A trajectory's tokens are its prompt and what was generated. One that never gave a token counts nothing, and so does
# what is unfinished at the end.
#
# * effective throughput = trained tokens / duration
# * waste = dropped tokens / (trained + dropped tokens)
#
# The run ends when its last training step ends.


# %%
def throughput_and_waste(folder: Path) -> tuple[float, float]:
    """Return effective throughput, token/s, and waste from trajectories and batches."""
    rows = pd.read_parquet(folder / "trajectories.parquet")
    batches = pd.read_parquet(folder / "batches.parquet")
    tokens = (rows["prompt_tokens"] + rows["generated_tokens"]).where(rows["generated_tokens"] > 0, 0)
    trained = tokens[rows["fate"] == "trained"].sum()
    dropped = tokens[rows["fate"].isin(["dropped_l2", "dropped_l3"])].sum()
    duration_s = (batches["start_s"] + batches["train_s"]).max()
    return trained / duration_s, dropped / (trained + dropped)


# %% [markdown]
# ## Staleness by hand
#
# A trajectory that lives through weight updates has one segment for each rollout version. The staleness of a token is
# the trainer's version when its batch was taken less the version that generated it. A prompt counts with its first
# token.


# %%
def staleness(folder: Path) -> pd.Series:
    """Return trained tokens by batch and staleness from segments and trajectories."""
    rows = pd.read_parquet(folder / "trajectories.parquet")
    segments = pd.read_parquet(folder / "segments.parquet")
    segments["first"] = ~segments["trajectory"].duplicated()
    owner = rows.loc[segments["trajectory"]].reset_index(drop=True)  # segments name their row of trajectories
    kept = owner["fate"] == "trained"
    levels = pd.DataFrame(
        {
            "version": owner["consumed_version"],
            "staleness": owner["consumed_version"] - segments["version"],
            "tokens": segments["tokens"] + owner["prompt_tokens"].where(segments["first"], 0),
        }
    )
    return levels[kept].astype(int).groupby(["version", "staleness"])["tokens"].sum()


staleness(folder).reset_index().pivot_table(index="version", columns="staleness", values="tokens", fill_value=0)

# %% [markdown]
# ## They agree, run by run

# %%
checked = []
for row in sweep.itertuples():
    folder = OUTPUT / "runs" / row.run_id
    effective, waste = throughput_and_waste(folder)
    levels = staleness(folder)
    in_batches = pd.read_parquet(folder / "batches.parquet").groupby(["version", "staleness"])["tokens"].sum()
    assert levels.equals(in_batches.astype(levels.dtype)), "segments and batches agree"
    ages = levels.index.get_level_values("staleness")
    assert np.isclose(effective, row.effective_throughput)
    assert np.isclose(waste, row.waste)
    assert ages.max() == row.max_staleness
    assert np.isclose(np.average(ages, weights=levels), row.mean_staleness)
    assert pd.isna(row.strict_bound) or ages.max() <= row.strict_bound
    checked.append((row.framework, row.eta, row.seed, effective, waste, ages.max()))
pd.DataFrame(checked, columns=["framework", "eta", "seed", "token/s", "waste", "max_staleness"]).round(3)
