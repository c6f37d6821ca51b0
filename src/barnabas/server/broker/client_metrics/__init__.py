"""Metrics of clients (KIP-714): which clients push which metrics, and what they have pushed.

`subscriptions.py` matches clients with the subscriptions in the metadata, `instances.py` decides on requests, `otlp.py`
reads the metrics, `store.py` keeps the newest values and shows them on the page of metrics.
"""
