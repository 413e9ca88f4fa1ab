"""The rivals, each in one file, written from its specification."""
