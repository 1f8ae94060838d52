"""Rollout engines: the protocol, the instances that carry them on the clock, and the cluster."""
