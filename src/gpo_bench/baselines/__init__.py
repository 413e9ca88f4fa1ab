"""The baselines, each in one file, written from its specification."""
