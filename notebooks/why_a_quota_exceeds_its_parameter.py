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
# # Why a quota exceeds its parameter
#
# AReaL, SkyRL and others bound staleness by a quota: by version v the trainer may have admitted (eta + 1 + v)
# batches. The knob is called a maximum staleness. It is none. This notebook takes one AReaL run at eta = 1 apart,
# group by group, and shows where older tokens come from. Then it adds a filter before training (L3), with which it
# cannot happen.

# %%
import os
from pathlib import Path

import pandas as pd
from IPython.display import Image
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from simrl.plots import layout, style
from simrl.sweep.execute import run_points
from simrl.sweep.grid import expand, sweep_of

SMALL = os.environ.get("SIMRL_SMALL") == "1"  # the test suite's size: seconds, and figures that mean nothing
OUTPUT = Path(os.environ.get("SIMRL_OUTPUT", "../outputs"))  # a notebook's working directory is its own folder
ETA = 1

# %% [markdown]
# ## Two runs under one load
#
# Both admit by the same quota. `layers_l1_l3` also drops, before training, every group older than eta, and admits
# another one in its place.

# %%
size = {"versions": 3, "groups_per_batch": 4, "group_size": 2, "workload.mean_response_tokens": 1000} if SMALL else {}
blocks = {"a": {"framework": ["areal", "layers_l1_l3"], "framework.eta": ETA}}
outcomes = run_points(expand(sweep_of({"shared": size, "blocks": blocks}, "notebook")), OUTPUT, workers=1)
quota, filtered = (outcome.folder for outcome in outcomes)


# %% [markdown]
# ## Groups
#
# The unit of admission is the group: the responses to one prompt. It is ready when its slowest member has finished.
# Its age is the version at which it is trained less the version at which it was admitted. It is *overtaken* by every
# group that was admitted at a later version and yet trained in an earlier batch.


# %%
def groups_of(folder: Path) -> pd.DataFrame:
    """Return one row a group, those unfinished at the end left out; times in s, versions, tokens."""
    rows = pd.read_parquet(folder / "trajectories.parquet")
    groups = (
        rows[rows["fate"] != "unfinished"]
        .groupby("group")
        .agg(
            fate=("fate", "first"),
            admitted=("admission_version", "first"),
            trained=("consumed_version", "first"),
            staleness=("staleness", "max"),
            longest_response=("response_tokens", "max"),
            submit_s=("submit_s", "first"),
            ready_s=("finish_s", "max"),
        )
    )
    groups["age"] = groups["trained"] - groups["admitted"]
    groups["overtaken_by"] = [
        int(((groups["admitted"] > row.admitted) & (groups["trained"] < row.trained)).sum())
        for row in groups.itertuples()
    ]
    return groups


groups, filtered_groups = groups_of(quota), groups_of(filtered)
over = groups[groups["age"] > ETA].sort_values("age", ascending=False)
print(
    f"{len(over)} of {len(groups)} trained groups are older than eta = {ETA}; the oldest is {groups['age'].max():.0f}"
)
over.head(8).round(0)

# %% [markdown]
# The groups over the limit are long ones. Compare their longest response with that of all trained groups:

# %%
pd.DataFrame({"over eta": over["longest_response"], "all trained": groups["longest_response"]}).describe().loc[
    ["count", "50%", "min", "max"]
].round(0)


# %% [markdown]
# ## Batch by batch
#
# What was admitted since the step before, and what the batch is made of. The quota is never exceeded: at version v at
# most (eta + 1 + v) batches have been admitted. Still some batches hold groups older than eta.


# %%
def batches_of(folder: Path, groups: pd.DataFrame) -> pd.DataFrame:
    """Return one row a batch: when it was taken, groups by age, tokens by staleness."""
    levels = pd.read_parquet(folder / "batches.parquet")
    taken_s = levels.groupby("version")["start_s"].first()
    admitted = pd.read_parquet(folder / "trajectories.parquet").drop_duplicates("group")["admission_version"]
    trained = groups[groups["fate"] == "trained"].astype({"age": int})
    ages = pd.crosstab(trained["trained"].astype(int), trained["age"]).add_prefix("groups of age ")
    tokens = levels.pivot_table(index="version", columns="staleness", values="tokens", aggfunc="sum", fill_value=0)
    thousands = (tokens / 1000).round(0).astype(int).add_prefix("ktokens of staleness ")
    in_all = admitted.value_counts().sort_index().cumsum().reindex(taken_s.index, method="ffill")
    return pd.concat([taken_s.round(0), in_all.rename("admitted so far"), ages, thousands], axis=1)


batches = batches_of(quota, groups)
per_batch = int(groups["trained"].value_counts().iloc[0])
assert (batches["admitted so far"] <= (ETA + 1 + batches.index) * per_batch).all(), "the quota holds"
batches

# %% [markdown]
# ## The mechanism
#
# After a publish, (eta + 1) batches of groups are in the house and the trainer needs one batch of them: *any* groups
# that are ready. A slow group is not ready, so the trainer takes younger ones instead. Each step does two things:
#
# 1. The batch leaves and the quota grows by a batch. Fresh groups are admitted **at the new version**.
# 2. The slow group stays. It has used its place in the quota long ago, so nothing counts against it.
#
# Up to eta batches of slow groups can be passed over at every step, for as long as they generate. A group's age is
# about the time it generates divided by the time of a step, plus the wait for its turn. The quota counts groups. It
# knows no group's age, so eta limits *how many* are ahead of the trainer, not *how old* they get.


# %%
def grid_figure(title: str, panels: dict[str, pd.DataFrame]):
    """Draw each group at its admission version and its training version; over eta and dropped ones are marked."""
    with style.house_style():
        figure = layout.sheet(14.0)
        last = int(max(table["trained"].max() for table in panels.values()))
        side = 4.3
        axes = []
        for name, table in panels.items():
            axis = layout.panel(figure, side, side * (last + 2.6) / (last + 1))
            axis.set_title(name, loc="left", fontweight="bold")
            for version in range(last + 1):
                cells = Rectangle(
                    (version - 0.5, version - 0.5), 1, min(ETA, last - version) + 1, color="#e3ecf5", lw=0
                )
                axis.add_patch(cells)
            axis.axhspan(last + 0.6, last + 2, color=style.PAPER, lw=0)
            marks = {  # over eta differs by shape and size as well as colour
                "within": ("o", 9, style.look_of("areal").colour),
                "over": ("^", 30, style.ALARM),
                "dropped": ("x", 18, style.look_of("verl_drop").colour),
            }
            y = table["trained"].fillna(last + 1.3)
            kind = table["age"].gt(ETA).map({True: "over", False: "within"}).where(table["trained"].notna(), "dropped")
            place = table.groupby([table["admitted"], y]).cumcount()  # groups of one cell stand in a lattice
            count = place.groupby([table["admitted"], y]).transform("size")
            wide = count.pow(0.5).round().clip(4, 6)
            x = table["admitted"] + ((place % wide) - (wide.clip(upper=count) - 1) / 2) * 0.15
            y = y + (place // wide - ((count - 1) // wide) / 2) * 0.18
            for mark, (marker, area, colour) in marks.items():
                mine = kind == mark
                axis.scatter(x[mine], y[mine], area, color=colour, marker=marker, linewidths=1.1, zorder=3)
            axis.set(xlim=(-0.5, last + 0.5), ylim=(-0.5, last + 2), xlabel="version at admission")
            axis.set_yticks([*range(last + 1), last + 1.3], [*map(str, range(last + 1)), "dropped"])
            axis.set_xticks(range(last + 1))
            axis.grid(visible=False)
            axes.append(axis)
        axes[0].set_ylabel("version at training")
        words = {"within": f"group trained at age 0 to {ETA}", "over": f"group trained older than eta = {ETA}"}
        words["dropped"] = "group dropped before training"
        handles = [
            Line2D([], [], color=colour, marker=marker, linestyle="none", markersize=6, label=words[mark])
            for mark, (marker, _, colour) in marks.items()
        ]
        handles.append(Patch(color="#e3ecf5", label=f"ages 0 to {ETA}"))
        subtitle = "each mark is a group; several of one cell stand side by side; versions are finished training steps"
        layout.lay_out(figure, [axes], title, subtitle, [(handles, None)])
        return figure


figure = grid_figure(
    "A quota lets groups age; a filter before training does not",
    {f"quota alone (AReaL, eta = {ETA})": groups, f"quota and filter (L1 + L3, eta = {ETA})": filtered_groups},
)
style.save(figure, OUTPUT / "notebooks" / "quota_grid.png")
Image(OUTPUT / "notebooks" / "quota_grid.png", width=900)

# %% [markdown]
# ## The slow group
#
# The oldest group of the AReaL run, among those that were admitted with it. A thick line generates, a thin one waits
# to be trained. Each vertical line is a batch that is taken. Short groups leave with the first batches; the slow one
# is still generating while batch after batch passes it, and it arrives late.


# %%
def lives_figure(groups: pd.DataFrame, batches: pd.DataFrame):
    """Draw generation and wait of the groups admitted together with the oldest one, over the batches taken."""
    oldest = groups["age"].idxmax()
    admitted = groups.loc[oldest, "admitted"]
    shown = groups[groups["admitted"] == admitted].sort_values(["trained", "ready_s"])
    last = int(shown["trained"].max())
    with style.house_style():
        figure = layout.sheet(12.0)
        axis = layout.panel(figure, 8.6, 0.2 * len(shown) + 0.5)
        for version, taken_s in batches["start_s"].loc[max(0, admitted - 1) : last].items():
            axis.axvline(taken_s, color=style.MUTED, linewidth=0.9, zorder=1)
            above = (taken_s, 1.0), (0, 3), axis.get_xaxis_transform()
            axis.annotate(
                f"{version}", above[0], above[1], xycoords=above[2], textcoords="offset points", ha="center", fontsize=8
            )
        for y, row in enumerate(shown.itertuples()):
            colour = style.ALARM if row.age > ETA else style.look_of("areal").colour
            taken_s = batches["start_s"][row.trained]
            axis.plot([row.submit_s, row.ready_s], [y, y], color=colour, linewidth=5, solid_capstyle="butt", zorder=2)
            axis.plot([row.ready_s, taken_s], [y, y], color=colour, linewidth=1.2, zorder=2)
            axis.plot(taken_s, y, color=colour, marker="^" if row.age > ETA else "o", markersize=6, zorder=3)
        axis.set(xlabel="time (s)", ylim=(-0.8, len(shown) - 0.2))
        axis.set_ylabel(f"groups admitted at version {admitted}", labelpad=10)
        axis.set_yticks(range(len(shown)), [f"{name}  age {row.age:.0f}" for name, row in shown.iterrows()])
        axis.grid(visible=False)
        blue = style.look_of("areal").colour
        handles = [
            Line2D([], [], color=blue, linewidth=5, label="generates (its slowest member)"),
            Line2D([], [], color=blue, linewidth=1.2, marker="o", label="waits, then is trained"),
            Line2D([], [], color=style.ALARM, linewidth=5, marker="^", label=f"trained older than eta = {ETA}"),
            Line2D([], [], color=style.MUTED, linewidth=0.9, label="a batch is taken (its version above)"),
        ]
        passed = groups.loc[oldest, "overtaken_by"]
        title = f"Group {oldest} waits for its slowest member while {passed} younger groups pass"
        layout.lay_out(figure, [[axis]], title, "AReaL's quota alone; one line a group", [(handles, None)])
        return figure


figure = lives_figure(groups, batches)
style.save(figure, OUTPUT / "notebooks" / "slow_group.png")
Image(OUTPUT / "notebooks" / "slow_group.png", width=900)

# %% [markdown]
# ## With a filter it cannot happen, and what that costs
#
# L3 looks at the one thing that the quota does not: the age at training. A group above eta is dropped, so no trained
# token is older than eta, whatever the load. The price is what the slow groups had generated. Whoever drops by age
# drops long responses: look at their length beside the trained ones'.

# %%
assert filtered_groups["age"].max() <= ETA, "the filter's promise"
summaries = pd.concat([pd.read_parquet(folder / "summary.parquet") for folder in (quota, filtered)])
columns = ["framework", "eta", "strict_bound", "max_staleness", "mean_staleness", "effective_throughput", "waste"]
summaries[[*columns, "mean_length_ratio_dropped_to_trained"]].set_index("framework").round(3)

# %% [markdown]
# ## What to take from it
#
# * Read a quota's eta as a *lead in batches*. It bounds memory and mean staleness, not the maximum.
# * The maximum grows with the longest responses divided by the time of a step. It grows with eta as well.
# * A strict bound needs a rule that looks at ages: a filter (L3), cancelling plus a filter, or a trainer that waits.
#   [mechanisms.md](../docs/mechanisms.md) lists which framework has which; `choosing_under_a_cap` measures each.
