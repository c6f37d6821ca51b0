"""PostgreSQL as a source: the pure part, from the bytes of logical decoding to columns of row changes."""
