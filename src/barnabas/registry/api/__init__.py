"""Shell: the REST API: `app.py` takes HTTP requests to the handlers of `table.py`."""
