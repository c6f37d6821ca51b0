"""PySpark: `format("barnabas")`, a source and a sink of DataFrames.

This package imports nothing: Spark's driver, its planning processes and its workers import only the modules that they
run.
"""
