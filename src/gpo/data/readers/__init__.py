"""Readers of file layouts, one module each; `registry.open_data` recognises the layout."""
