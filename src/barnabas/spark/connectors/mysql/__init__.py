"""Change capture of MySQL and MariaDB. `binlog/` decodes the row binlog, `source.py` reads a server."""
