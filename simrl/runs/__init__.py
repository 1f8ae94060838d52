"""One run on disk: identity, lock, limits, tables and status."""
