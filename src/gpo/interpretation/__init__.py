"""What the particles, windows and modes of a trained gpo do, in numbers: `gpo interpret`.

`interpretation.py` asks five questions and assembles the answers: do particles follow structures
of the field (`structures.py`), what does their motion do (`motion_numbers.py`), are the windows used (`windows.py`, `waves.py`), what changes under
ablation (`ablations.py`), and is all of that stable (`stability.py`). `results.py` is the file
`interpret.json`. Each number stands beside a null model, an even spread or the model's own error.
"""
