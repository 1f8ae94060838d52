"""SimRL: a simulator and experiment-sweep platform for asynchronous LLM reinforcement-learning post-training."""

from simrl import version

__version__ = version.VERSION
