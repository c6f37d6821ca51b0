#!/usr/bin/env bash
# kafka-metadata-shell by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-metadata-shell" "$@"
