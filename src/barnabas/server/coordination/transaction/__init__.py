"""The transaction coordinator: fencing of producers, transactions over many partitions, and their markers."""
