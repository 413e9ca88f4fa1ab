"""Solvers that make the benchmarks' data sets; that of ns2d is part of the core."""
