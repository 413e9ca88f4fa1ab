"""Numbers about a trained run, never a picture."""
