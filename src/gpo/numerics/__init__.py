"""Mathematics on tensors; knows no model and no data."""
