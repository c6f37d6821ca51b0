"""Shells: the APIs that only controllers serve, on their own listener (`broker/controller_apis.py`), one file each."""
