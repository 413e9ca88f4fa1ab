"""The baselines, one file each, implemented from their publications."""
