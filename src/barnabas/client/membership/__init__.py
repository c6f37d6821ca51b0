"""The machines of group membership, without I/O and clock. The coordinator shells send their requests."""
