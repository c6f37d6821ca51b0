"""The row binlog of MySQL and MariaDB without I/O: bytes to events, to transactions, to Arrow columns.

`decoder.py` decodes events, `transactions.py` groups them into committed transactions, and `rows.py` decodes the rows
of a transaction into Arrow columns.
"""
