"""One run in time: what it stored, where its time went, its trace."""
