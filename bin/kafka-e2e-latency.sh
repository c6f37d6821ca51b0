#!/usr/bin/env bash
# kafka-e2e-latency by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-e2e-latency" "$@"
