"""What things cost: memory, iterations of an engine, training steps and weight syncs, without any event."""
