"""Machine: configurations of connectors -> plans of streaming queries."""
