"""A run of the user's own: its logs read, its costs and lengths fitted, its later steps predicted."""
