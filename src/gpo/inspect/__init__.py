"""Particle clouds and tracers, their NetCDF and Zarr files, and their VTK and PLY exports."""
