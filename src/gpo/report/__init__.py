"""Pictures: the only place that imports matplotlib."""
