"""The readers that Spark calls, and the plan of what a micro-batch reads."""
