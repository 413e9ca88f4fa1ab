"""Solvers, one file per equation; each writes the layout in which its data are published."""
