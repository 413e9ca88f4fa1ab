"""The Gaussian Particle Operator: the method section of the paper, one idea per file."""
