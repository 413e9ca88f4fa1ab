"""Readers of published layouts, one file each; `registry.open_data` finds the one of a file."""
