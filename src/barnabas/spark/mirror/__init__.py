"""MirrorMaker 2 on Spark: the topics, records and configurations of Kafka's MirrorMaker, between any two clusters."""
