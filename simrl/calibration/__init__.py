"""Fitting costs and load to published values or to a measured run; ``simrl calibrate`` is its command."""
