"""Guards: one function for each API whose requests are authorized entry by entry. See ../README.md."""
