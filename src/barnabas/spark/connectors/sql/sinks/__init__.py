"""Databases as sinks, exactly once: tasks stage rows, and one transaction applies them and updates the ledger.

Start reading at `ports.py`, then `target.py`.
"""
