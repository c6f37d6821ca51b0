"""Sources that poll tables and queries of databases, as Connect's JDBC source does. Start reading at `source.py`."""
