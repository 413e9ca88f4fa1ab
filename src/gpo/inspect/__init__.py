"""Particles as objects to keep: clouds, tracks, files, VTK."""
