"""Scores of a trained model: numbers, never pictures.

`score.py` evaluates a test split and calls the others: references, rollouts, spectra and transfer to
other sites. `results.py` is the file `results.json`; `example.py` the example that the report shows.
"""
