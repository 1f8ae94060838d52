"""One module a source of logs and dumps; each has ``NAME``, ``sniff`` and ``read``."""
