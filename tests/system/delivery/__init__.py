"""The exactly-once sink of Spark against a real broker, without Spark: its writers are called as Spark calls them."""
