"""A user's own package: a rule that SimRL does not have."""
