"""Fit named parameters to a reference table or to a measured run.

SPEC is a YAML file such as sweeps/calibration.yaml; see docs/calibration.md. report.md and values.json go to the output
folder when the fit is done, and not before. ``python -m simrl.calibrate SPEC`` is the same.
"""

from __future__ import annotations

from simrl.calibrate import answer as main
from simrl.calibrate import arguments

__all__ = ["arguments", "main"]
