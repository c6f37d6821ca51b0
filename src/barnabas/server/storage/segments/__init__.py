"""The files of a log: segments and their indexes."""
