#!/usr/bin/env bash
# kafka-share-consumer-perf-test by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-share-consumer-perf-test" "$@"
