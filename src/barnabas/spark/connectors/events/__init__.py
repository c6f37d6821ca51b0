"""Change events in Debezium's format without I/O: row changes in columns to keys, values and headers of records.

`changes.py` has the row changes that a source gives, `envelope.py` makes events of them, `metadata.py` the records of
transactions and heartbeats.
"""
