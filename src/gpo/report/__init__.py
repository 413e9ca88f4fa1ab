"""Figures, and the page of a run that holds them: the only package that imports matplotlib.

`run_report.py` writes `report.html` from results, log and data. Its figures are in `run_figures.py`,
`motion.py`, `particles.py` and `interpretation.py`; `contact_sheet.py` and `fields.py` draw one field
on any sites.
"""
