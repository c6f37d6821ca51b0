"""Records/s and latencies of pipelines on Spark and of `barnabas.stream`, beside Spark's own connector and Kafka
Streams: `python -m bench.pipelines`."""
