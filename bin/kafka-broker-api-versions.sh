#!/usr/bin/env bash
# kafka-broker-api-versions by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-broker-api-versions" "$@"
