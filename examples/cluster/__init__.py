"""A pipeline on a Spark cluster: a standalone master with two workers, of which one loses its executor."""
