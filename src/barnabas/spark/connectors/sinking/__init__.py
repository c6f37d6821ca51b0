"""What all sinks of the connectors share: rows as tables, the identity of a micro-batch, stage and publish.

Start reading at `ports.py`.
"""
