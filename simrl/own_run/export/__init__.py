"""A simulated run in the form of a real run's logs."""
