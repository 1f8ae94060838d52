"""Fitting costs and load to published values or to a measured run; ``python -m simrl.calibrate`` is its command."""
