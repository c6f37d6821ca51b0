"""The writers that Spark calls."""
