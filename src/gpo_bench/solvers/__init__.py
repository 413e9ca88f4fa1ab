"""Solvers that generate the benchmark data sets; the solver of ns2d is part of `gpo`."""
