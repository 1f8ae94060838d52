"""Placements: which phases run on which accelerators, and what happens between them."""
