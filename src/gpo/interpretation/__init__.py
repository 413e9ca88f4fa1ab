"""Measures what the particles, windows and modes of a trained gpo do: `gpo interpret`.

`interpretation.py` assembles `interpret.json` (`results.py`) from answers to five questions: do
particles follow structures of the field (`structures.py`), which part of the predicted change is due
to their displacements (`attribution.py`, `controls.py`, `tracers.py`), are the modes used
(`modes.py`), what changes under ablation (`ablations.py`), and is all of that stable
(`interpretation.py` itself). Each number stands beside a null distribution, a uniform reference or
the model's own error.
"""
