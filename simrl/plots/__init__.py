"""Figures: one function a figure, tables in, a matplotlib Figure out."""
