"""Scores of a trained model: numbers only.

`score.py` evaluates a test split and calls the other modules: rollouts, spectra and transfer to
other sites. `registry.py` lists metrics. `results.py` reads and writes `results.json`; `example.py`
holds the example that the report shows. `flow.py` and `derivatives.py` compute velocity, vorticity
and derivatives of fields.
"""
