"""Data: one data model, readers of published layouts, solvers and writers.

`dataset.py` holds the data model, `Trajectories` and `StaticMaps` on the sites of a `Geometry`.
`readers/` returns it from files, `solvers/` makes files that the readers read, `writers/` writes
forecasts. `splits.py`, `forcings.py` and `coarsen.py` prepare it for training.
"""
