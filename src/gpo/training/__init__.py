"""Training: the only place that imports Lightning."""
