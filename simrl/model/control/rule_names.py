"""The names of SimRL's own rules."""

from __future__ import annotations

CONTROL = "simrl.model.control"
RULES: dict[str, dict[str, str]] = {
    "admission": {
        "version_quota": f"{CONTROL}.admission.version_quota:VersionQuota",
        "held_permits": f"{CONTROL}.admission.held_permits:HeldPermits",
        "running_window": f"{CONTROL}.admission.running_window:RunningWindow",
        "trajectory_slots": f"{CONTROL}.admission.trajectory_slots:TrajectorySlots",
        "batch_permits": f"{CONTROL}.admission.batch_permits:BatchPermits",
        "buffer_permits": f"{CONTROL}.admission.buffer_permits:BufferPermits",
        "quota_and_extras": f"{CONTROL}.admission.quota_and_extras:QuotaAndExtras",
        "adaptive_concurrency": f"{CONTROL}.prime_rl.concurrency:AdaptiveConcurrency",
        "dispatch_count": f"{CONTROL}.admission.dispatch_count:DispatchCount",
        "backlog": f"{CONTROL}.deadline:Backlog",
        "reservations": f"{CONTROL}.psrl:Reservations",
    },
    "cancellation": {
        "never": f"{CONTROL}.cancellation.never:Never",
        "older_than": f"{CONTROL}.cancellation.older_than:OlderThan",
        "older_than_collecting": f"{CONTROL}.prime_rl.orchestrator:OlderThanCollecting",
    },
    "sampling": {
        "oldest_first": f"{CONTROL}.sampling.oldest_first:OldestFirst",
        "completion_order": f"{CONTROL}.sampling.completion_order:CompletionOrder",
        "oldest_version": f"{CONTROL}.sampling.oldest_version:OldestVersion",
        "bound_batch": f"{CONTROL}.sampling.bound_batch:BoundBatch",
        "recent_versions": f"{CONTROL}.sampling.recent_versions:RecentVersions",
        "version_by_version": f"{CONTROL}.sampling.version_by_version:VersionByVersion",
        "fifo_sink": f"{CONTROL}.prime_rl.train_sink:FifoSink",
        "most_urgent": f"{CONTROL}.deadline:MostUrgent",
        "reservations": f"{CONTROL}.psrl:Reservations",
    },
}
"""By layer and name; import paths, as for a user's own rules, so that a run loads no other rules than it has."""
