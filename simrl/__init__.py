"""SimRL: a simulator and experiment-sweep platform for asynchronous LLM reinforcement-learning post-training."""

__version__ = "0.1.0"
