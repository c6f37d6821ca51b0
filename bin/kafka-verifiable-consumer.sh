#!/usr/bin/env bash
# kafka-verifiable-consumer by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-verifiable-consumer" "$@"
