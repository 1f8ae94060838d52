"""One run in time: its stored configuration, its time breakdown, its Chrome trace for Perfetto."""
