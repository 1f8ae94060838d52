"""Where the runs of a sweep are computed: processes, Ray, and Hydra's launchers."""
