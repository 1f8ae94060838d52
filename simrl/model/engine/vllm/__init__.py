"""Rollout: instances that run vLLM's scheduler over groups of trajectories."""
