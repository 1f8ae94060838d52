"""ROLL's quota, and extra groups beyond it while few are running."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import Annotated

from simrl.config.parameters import AtLeast
from simrl.model.control.admission import Admission
from simrl.model.control.ledger import Group, Ledger


@dataclass
class QuotaAndExtras(Admission):
    """ROLL's quota of (ratio + 1 + version) batches, and extra groups beyond it while few are running.

    ROLL ``roll/distributed/scheduler/generate_scheduler.py`` ReplayBuffer._check_send_new_request, _commit_prompt,
    _abort_prompt (8eb27cc, 2026-08-19) with is_use_additional_prompts, which is off by default. Whatever finishes or
    is cancelled counts against the quota first; an extra one that finishes does not count at all.
    """

    ratio: Annotated[float, AtLeast(0)]
    """async_generation_ratio; the first quota has this many batches more, rounded up to groups."""
    max_additional_running_prompts: Annotated[int, AtLeast(1)]
    """Running groups, quota and extra together, up to which extra ones are submitted."""
    quota_running: int = field(default=0, init=False)
    extra_running: int = field(default=0, init=False)
    quota_finished: int = field(default=0, init=False)
    cancelled: int = field(default=0, init=False)
    """Cancelled groups accounted for."""

    def _quota(self, version: int, groups_per_batch: int) -> int:
        return ceil(groups_per_batch * self.ratio) + (1 + version) * groups_per_batch

    def _account_for_cancelled(self, ledger: Ledger) -> None:
        news, self.cancelled = ledger.cancelled - self.cancelled, ledger.cancelled
        of_quota = min(news, self.quota_running)
        self.quota_running -= of_quota
        self.extra_running -= news - of_quota

    def admitted(self, ledger: Ledger, group: Group) -> None:  # noqa: ARG002
        """Count the group against the quota if that has room, else as extra."""
        if self.quota_running + self.quota_finished < self._quota(ledger.version, ledger.groups_per_batch):
            self.quota_running += 1
        else:
            self.extra_running += 1

    def finished(self, ledger: Ledger, group: Group) -> None:  # noqa: ARG002
        """Count one group of the quota as finished, or if none runs, one extra group less."""
        self._account_for_cancelled(ledger)
        if self.quota_running:
            self.quota_running -= 1
            self.quota_finished += 1
        else:
            self.extra_running -= 1

    def room(self, ledger: Ledger) -> int:
        """Return what is left of the quota and, on top, the extra groups that may run."""
        self._account_for_cancelled(ledger)
        used = self.quota_running + self.quota_finished
        left = max(0, self._quota(ledger.version, ledger.groups_per_batch) - used)
        running = self.quota_running + left + self.extra_running
        return left + max(0, self.max_additional_running_prompts - running)

    def supply(self, version: int, groups_per_batch: int) -> int:
        """Return the quota less the batches consumed by *version*."""
        return self._quota(version, groups_per_batch) - version * groups_per_batch
