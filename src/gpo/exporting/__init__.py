"""Trained models as programs that run without this library: `gpo export`.

`program.py` traces a forecaster on fixed sites and writes it; `describe.py` states the names, units
and axes of its input and output.
"""
