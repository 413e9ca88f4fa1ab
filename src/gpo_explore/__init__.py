"""The web page of a trained run: `gpo explore RUN`.

`server.py` serves `app.py`, which validates requests (`requests.py`) behind `security.py` and answers
them with packets of arrays (`arrays.py`): fields in `answers.py`, layers and particles in
`internals.py`, attribution in `attribution.py`, motion in `motion.py`. `session.py` holds the run, `static/` the page.
"""
