"""Data sets: the data model, readers of file layouts, solvers and writers.

`dataset.py` defines the data model: `FieldData` on the sites of a `Geometry`.
`readers/` opens files, `solvers/` generates benchmark files, `writers/` writes forecasts.
`splits.py`, `forcings.py` and `coarsen.py` prepare data for training.
"""
