"""The page on which a trained run can be looked into: `gpo explore RUN`."""
