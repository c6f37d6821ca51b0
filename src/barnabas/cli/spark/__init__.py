"""The commands of what runs on Spark: `pipelines`, `connect` and `mirror`."""
