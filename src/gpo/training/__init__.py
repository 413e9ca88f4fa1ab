"""Configuration and training loop; the only package that imports Lightning."""
