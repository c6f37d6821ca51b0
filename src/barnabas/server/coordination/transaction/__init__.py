"""The transaction coordinator: producer ids with fencing, transactions over many partitions, and their markers."""
