"""prime-rl's orchestrator, a controller of its own, under upstream's names."""
