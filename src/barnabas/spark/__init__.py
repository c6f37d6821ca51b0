"""PySpark: the log as a source and a sink of DataFrames, `format("barnabas")`.

Nothing is imported here: Spark's driver, its planning processes and each of its workers import only what they run.
"""
