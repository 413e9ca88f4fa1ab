"""Exports trained models as programs that run without gpo: `gpo export`.

`program.py` traces a forecaster on fixed sites and writes it; `describe.py` returns the names, units
and axes of its input and output.
"""
