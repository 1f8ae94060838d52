"""The configuration: its schema, its composition by Hydra, and what one line says of bad input."""
