#!/usr/bin/env bash
# kafka-console-share-consumer by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-console-share-consumer" "$@"
