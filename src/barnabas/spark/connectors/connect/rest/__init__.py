"""Shell: Kafka Connect's REST API. `app.py` routes HTTP requests to the handlers that `table.py` lists."""
