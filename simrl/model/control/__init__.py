"""Staleness control: admission (L1), cancellation (L2) and sampling (L3) rules, and their composition."""
