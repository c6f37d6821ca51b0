"""Databases as sinks, exactly once: tasks stage rows, the driver applies them in the transaction that moves the ledger.

Start reading at `ports.py`, then `target.py`.
"""
