"""Named sweeps: the grids (YAML files) and the scripts that turn their tables into reports."""
