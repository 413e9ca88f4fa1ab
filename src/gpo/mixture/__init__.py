"""A field as few Gaussians with full covariance: the object, its fit, its files, its motion."""
