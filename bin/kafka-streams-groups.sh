#!/usr/bin/env bash
# kafka-streams-groups by the name that Kafka's distribution gives it; needs `make setup` once.
exec "$(dirname "$0")/../.venv/bin/kafka-streams-groups" "$@"
