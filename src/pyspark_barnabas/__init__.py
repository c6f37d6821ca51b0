"""Lets Spark find `format("barnabas")` by itself (Spark imports every `pyspark_*` package, so this one is tiny)."""
