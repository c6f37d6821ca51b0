"""What clients use: bytes, requests and time of the event loop, by client id, address, principal and partition.

`tables.py` counts what connections have used and has the rates, `series.py` the sums for Prometheus.
"""
