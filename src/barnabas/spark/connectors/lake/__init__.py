"""Lake tables: `format("barnabas.delta")` and `format("barnabas.iceberg")`, exactly once, without a JVM."""
