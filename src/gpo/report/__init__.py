"""Figures, and the report of a run that shows them: the only package of gpo that imports matplotlib.

`run_report.py` writes `report.html` from the sections in `registry.py`; those of gpo are in
`sections.py`. Figures are drawn in `run_figures.py`, `layers.py`, `motion.py`, `particles.py`,
`spectra.py` and `interpretation.py`; `contact_sheet.py` and `fields.py` draw a single field.
"""
