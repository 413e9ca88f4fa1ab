"""One file per published layout; `registry.open_data` is the door."""
