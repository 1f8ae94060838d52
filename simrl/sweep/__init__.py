"""A sweep: its grid, the processes that run it, its folder, its table and its seeds."""
