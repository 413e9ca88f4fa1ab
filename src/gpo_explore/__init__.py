"""The web page of a trained run: `gpo explore RUN`.

`server.py` serves the application of `app.py`, behind the checks of `security.py`. `panels.py` lists
the panels: `requests.py` validates the request of each, `answers.py` and the modules beside it compute
the answers, packets of arrays (`arrays.py`). `session.py` holds the run, `static/` the page.
"""
