"""What Kafka Streams programs do, on Spark: one small file for each. README.md lists them."""
