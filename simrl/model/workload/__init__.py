"""The load: laws and trace files that give prompt and response lengths group by group."""

from simrl.model.workload.build import build_workload
from simrl.model.workload.lengths import Workload

__all__ = ["Workload", "build_workload"]
