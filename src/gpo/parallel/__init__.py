"""Sites and batches that several processes share; the only place that knows torch.distributed."""
