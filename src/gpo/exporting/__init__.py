"""Trained models as programs that run without this library."""
